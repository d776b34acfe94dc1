//! SMB Direct and push traffic as tshark sees it: MPA, DDP/RDMAP, SMB Direct and SMB2 dissected,
//! every CRC good, no frame malformed.
//!
//! Two captures of the same run are read: one made by dumpcap on loopback (root only), one
//! written by the server itself (`--pcap`), which shows that our pcap writer is right too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::{Landfast, bench};
use crate::peer::Address;
use crate::process::{Running, Step};
use crate::workspace;

/// Captures a short bench of both RDMA modes and reads the captures.
pub(crate) fn run() -> Outcome {
    let captures = workspace::kept("captures")?;
    let [wire, own] = ["loopback.pcapng", "server.pcap"].map(|name| captures.join(name));
    for old in [&wire, &own] {
        let _ = fs::remove_file(old);
    }
    let share = workspace::scratch_on_tmpfs()?;
    let pcap = own.display().to_string();
    let mut server = Landfast::start(share.path(), &["--emulate-persistence", "--pcap", &pcap])?;

    let mut tally = Tally::default();
    if workspace::is_root() {
        let mut dumpcap = Dumpcap::start(&server.address, &wire)?;
        traffic(&server.address)?;
        let dropped = dumpcap.stop()?;
        tally.count(
            "dumpcap",
            if dropped == 0 { Ok(()) } else { Err(format!("{dropped} dropped")) },
        );
        tally.add(read(&wire)?);
    } else {
        println!("  not root: reading only the server's own capture");
        traffic(&server.address)?;
    }
    server.running.stop(Duration::from_secs(10))?;
    tally.add(read(&own)?);
    Ok(tally)
}

/// Reads one capture and judges it.
pub(crate) fn read(capture: &Path) -> Outcome {
    let name = capture.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    let dissection = dissect(capture)?;
    let mut tally = Tally::default();
    for protocol in WANTED {
        let frames = dissection.frames_with(protocol);
        println!("  {name}: {protocol:<16} {frames:>8} frames");
        let seen = if frames > 0 { Ok(()) } else { Err("not one frame".to_owned()) };
        tally.count(&format!("{name}: {protocol}"), seen);
    }
    for (opcode, count) in &dissection.opcodes {
        println!("  {name}: RDMAP {opcode:#04x}  {:<32} {count:>8}", opcode_name(*opcode));
    }
    let malformed = match dissection.malformed.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} frames, first: {first}", dissection.malformed.len())),
    };
    tally.count(&format!("{name}: malformed"), malformed);
    let (good, bad) = crcs(capture)?;
    let sound = match (good, bad) {
        (1.., 0) => Ok(()),
        _ => Err(format!("{good} good and {bad} bad CRCs")),
    };
    tally.count(&format!("{name}: CRC"), sound);
    tally.note = format!("{name}: {} frames, {good} CRCs good", dissection.frames);
    Ok(tally)
}

/// Requests of both kinds, as short as the bench goes: every byte is captured twice. One request
/// at a time and none above 16 KiB, so that frames end where TCP segments end: tshark 4.0 gives up
/// a stream in which less than 8 bytes of a frame are the end of a segment, and between two ends
/// with our profile nothing keeps large frames in step with segments.
fn traffic(address: &Address) -> Result<(), Failure> {
    let url = address.url("captured");
    let common = ["--mode", "smb-direct,push", "--file-size", "4M", "-w", "50", "-r", "-o", "1"];
    for shape in [["-b", "4K", "-d", "0.1"], ["-b", "16K", "-d", "0.05"]] {
        bench(&url, &[&common[..], &shape[..]].concat())?;
    }
    Ok(())
}

/// A running dumpcap on loopback.
struct Dumpcap {
    running: Running,
    log: PathBuf,
}

impl Dumpcap {
    fn start(address: &Address, file: &Path) -> Result<Self, Failure> {
        let log = workspace::kept("logs")?.join("dumpcap.log");
        let ports = [Some(address.smb), address.rdma].into_iter().flatten();
        let filter: Vec<_> = ports.map(|address| format!("tcp port {}", address.port())).collect();
        let running = Step::new("dumpcap")
            .args(["-i", "lo", "-s", "0", "-B", BUFFER_MIB, "-f", &filter.join(" or "), "-w"])
            .arg(file)
            .serve(&log, false)?;
        let mut dumpcap = Self { running, log };
        let deadline = Instant::now() + Duration::from_secs(10);
        // It names its file once it has the interface open.
        while !dumpcap.said().contains("File:") {
            if dumpcap.running.ended().is_some() || Instant::now() > deadline {
                let said = dumpcap.said();
                return Err(Failure::new(format!("dumpcap does not capture on lo: {said}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(dumpcap)
    }

    /// Ends the capture and hands back how many packets were dropped.
    fn stop(&mut self) -> Result<u64, Failure> {
        // It reads its buffer every half second and ends without what it has not yet read.
        thread::sleep(Duration::from_secs(1));
        self.running.stop(Duration::from_secs(20))?;
        parse_dropped(&self.said())
            .ok_or_else(|| Failure::new(format!("dumpcap gives no counts: {}", self.said())))
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// `Packets received/dropped on interface 'Loopback: lo': 120/3 (pcap:3/...)` has 3 dropped.
fn parse_dropped(said: &str) -> Option<u64> {
    let counts = said.split("received/dropped").nth(1)?.split("': ").nth(1)?;
    counts.split_whitespace().next()?.split('/').nth(1)?.parse().ok()
}

/// What tshark made of a capture.
#[derive(Debug, Default, Eq, PartialEq)]
struct Dissection {
    frames: u64,
    stacks: BTreeMap<String, u64>,
    opcodes: BTreeMap<u8, u64>,
    malformed: Vec<String>,
}

impl Dissection {
    /// Takes in one line of the [`FIELDS`].
    fn take(&mut self, line: &str) {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        let (stack, malformed, opcodes, reserved) = (next(), next(), next(), next());
        let (number, expert) = (next(), next());
        self.frames += 1;
        *self.stacks.entry(stack.to_owned()).or_default() += 1;
        for (low, high) in numbers(opcodes).zip(numbers(reserved)) {
            *self.opcodes.entry(low | high << 4).or_default() += 1;
        }
        if !malformed.is_empty() {
            self.malformed.push(format!("frame {number} ({stack}) {expert}"));
        }
    }

    fn frames_with(&self, protocol: &str) -> u64 {
        let holds = |stack: &str| stack.split(':').any(|layer| layer == protocol);
        self.stacks.iter().filter(|(stack, _)| holds(stack)).map(|(_, count)| count).sum()
    }
}

fn dissect(capture: &Path) -> Result<Dissection, Failure> {
    let output = tshark(capture)
        .args(["-T", "fields"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .output()?;
    let mut dissection = Dissection::default();
    output.lines().for_each(|line| dissection.take(line));
    Ok(dissection)
}

/// How many CRCs tshark found good and bad.
fn crcs(capture: &Path) -> Result<(usize, usize), Failure> {
    let output = tshark(capture).args(["-Y", "iwarp_mpa.fpdu", "-O", "iwarp_mpa"]).output()?;
    let (good, bad): (Vec<&str>, _) = output
        .lines()
        .filter(|line| line.contains("CRC check: "))
        .partition(|line| line.contains("(Good CRC32)"));
    Ok((good.len(), bad.len()))
}

/// tshark reading `capture` with the options without which it does not look for MPA: the port
/// may belong to another protocol, and MPA is known by its content only.
pub(super) fn tshark(capture: &Path) -> Step {
    Step::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(["-n", "-o", "tcp.try_heuristic_first:TRUE"])
        // dumpcap may write the segments of two processors out of order.
        .args(["-o", "tcp.reassemble_out_of_order:TRUE"])
        .limit(Duration::from_secs(300))
}

/// RFC 5040 §4.3 and RFC 7306 §3, then draft-talpey-rdma-commit §4. tshark 4.0 knows four bits of
/// opcode and nothing of the draft: it shows 0x0c to 0x0f without a name, and takes an Atomic
/// Write Response (0x11) for a Read Request that is too short.
fn opcode_name(opcode: u8) -> &'static str {
    let names = [
        "RDMA Write",
        "RDMA Read Request",
        "RDMA Read Response",
        "Send",
        "Send with Invalidate",
        "Send with Solicited Event",
        "Send with SE and Invalidate",
        "Terminate",
        "Immediate Data",
        "Immediate Data with SE",
        "Atomic Request",
        "Atomic Response",
        "Flush Request (draft)",
        "Flush Response (draft)",
        "Verify Request (draft)",
        "Verify Response (draft)",
        "Atomic Write Request (draft)",
        "Atomic Write Response (draft)",
    ];
    names.get(usize::from(opcode)).copied().unwrap_or("unknown")
}

/// The values of a field that may occur several times in a frame: `0x00,0x03`.
fn numbers(field: &str) -> impl Iterator<Item = u8> {
    field.split(',').filter_map(|word| u8::from_str_radix(word.trim_start_matches("0x"), 16).ok())
}

/// The protocols that must be seen, by tshark's names.
const WANTED: [&str; 4] = ["iwarp_mpa", "iwarp_ddp_rdmap", "smb_direct", "smb2"];
/// What tshark is asked of each frame, in the order [`Dissection::take`] reads it. The reserved
/// bits hold the fifth bit of the draft's opcodes.
const FIELDS: [&str; 6] = [
    "frame.protocols",
    "_ws.malformed",
    "iwarp_rdma.opcode",
    "iwarp_rdma.rsv",
    "frame.number",
    "_ws.expert.message",
];
/// dumpcap's kernel buffer: a whole run, should it never be scheduled.
const BUFFER_MIB: &str = "256";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumpcaps_closing_line_gives_the_dropped_packets() {
        // Captured from dumpcap 4.0.17.
        let said = "Packets captured: 117\nPackets received/dropped on interface 'Loopback: lo': \
                    117/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0) (97.5%)\n";
        assert_eq!(parse_dropped(said), Some(3));
        assert_eq!(parse_dropped("dumpcap: no such device"), None);
    }

    #[test]
    fn a_line_of_tshark_is_counted_by_protocol_and_opcode() {
        let mut dissection = Dissection::default();
        // Captured from tshark 4.0.17 reading cifs.ko against ksmbd over siw.
        dissection.take(
            "eth:ethertype:ip:tcp:iwarp_mpa:iwarp_ddp_rdmap:data\t\t0x00,0x03\t0x00,0x00\t7\t",
        );
        dissection
            .take("eth:ethertype:ip:tcp:iwarp_mpa:x:smb2\t_ws.malformed\t0x03\t0x01\t9\tBER Error");
        assert_eq!(dissection.frames_with("iwarp_mpa"), 2);
        assert_eq!(dissection.frames_with("smb2"), 1);
        assert_eq!(dissection.opcodes.keys().copied().collect::<Vec<_>>(), [0x00, 0x03, 0x13]);
        assert_eq!(dissection.malformed.len(), 1);
    }
}
