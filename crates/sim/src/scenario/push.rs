//! A stream of pushed commits, a power failure, and a look at what was acknowledged.

use super::{MILLISECOND, PASSWORD, SHARE, SMB, STREAM, Scenario, USER, WORK_MAX, last_line};
use crate::failure::Failure;
use crate::machine::ProgramNumber;

impl Scenario<'_> {
    /// Runs the stream and looks for what it was told is durable.
    pub(super) fn push(&mut self) -> Result<(), Failure> {
        let url = format!("smb://{USER}:{PASSWORD}@{SMB}/{SHARE}/{STREAM}");
        let stream = self.start_other(STREAMER, &["stream", &url, "1"])?;
        let Some((acknowledged, sent)) = self.stream(stream)? else { return Ok(()) };
        if acknowledged < BLOCKS {
            return Ok(());
        }
        // The checker reads all, by SMB, over a network that lost nothing since.
        self.machine.net.weather = crate::net::Weather::default();
        let numbers = [acknowledged.to_string(), sent.to_string()];
        let words = ["check", &url, &numbers[0], &numbers[1]];
        let check = self.start_other(STREAMER, &words)?;
        match self.finish(check, STREAMER, WORK_MAX)? {
            Some(0) | None => {}
            Some(_) => {
                let said = last_line(&self.said(STREAMER));
                self.faults.push(format!("acknowledged {acknowledged}, sent {sent}: {said}"));
                return Ok(());
            }
        }
        self.machine.disk.wear = crate::disk::Wear::default();
        self.look_for_rests()
    }

    /// Runs the stream until the power fails; what it says was acknowledged, and sent.
    fn stream(&mut self, stream: ProgramNumber) -> Result<Option<(u64, u64)>, Failure> {
        let extra = self.plan.kills.first().copied().unwrap_or(3) * MILLISECOND;
        let mut pauses = self.plan.pauses.iter();
        let end = self.machine.now + WORK_MAX;
        let mut fails_at = None;
        while self.ended.is_empty() && fails_at.is_none_or(|at| self.machine.now < at) {
            if self.machine.now >= end {
                self.faults.push("the stream does not come on".into());
                return Ok(None);
            }
            if !self.pass(self.machine.now + MILLISECOND)? {
                return Ok(None);
            }
            let reached =
                numbers(&self.printed(STREAMER), "acknowledged").map_or(0, |(reached, _)| reached);
            if reached >= BLOCKS && fails_at.is_none() {
                fails_at = Some(self.machine.now + extra);
                if let Some((_, length)) = pauses.next() {
                    self.machine.pause(self.server, self.machine.now + length * MILLISECOND);
                }
            }
        }
        self.machine.kill(self.server)?;
        self.machine.programs[self.server].is_told = true;
        self.machine.disk.power_fails()?;
        let Some(status) = self.finish(stream, STREAMER, WORK_MAX)? else { return Ok(None) };
        if !self.start_server()? {
            return Ok(None);
        }
        let told = numbers(&self.printed(STREAMER), "ended");
        if told.is_none() && status != 1 {
            self.faults.push(format!(
                "the stream ends with {status}: {}",
                last_line(&self.printed(STREAMER))
            ));
        }
        Ok(told)
    }
}

// The last line that begins with `word`: `acknowledged N`, or `ended acknowledged N sent M`.
fn numbers(printed: &str, word: &str) -> Option<(u64, u64)> {
    let line = printed.lines().rev().find(|line| line.starts_with(word))?;
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    let first = numbers.next()?;
    Some((first, numbers.next().unwrap_or(first)))
}

const STREAMER: &str = "commit_stream";

/// Blocks that `commit_stream` writes in turn; the pointer's is behind them.
const BLOCKS: u64 = 256;
