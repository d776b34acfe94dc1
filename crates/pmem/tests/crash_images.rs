//! No crash, at any moment, loses or tears bytes that persist acknowledged; and the checks fail on
//! a machine that ignores a fence, a write-back or a flush.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::sync::Mutex;
    use std::thread;

    use pmem::crash::{AckLog, Budget, CrashState, Log, Recorder, Sabotage, Violation, check};
    use pmem::{AtomicOp, DurabilityClass, Medium};

    /// Bytes of a medium: few enough that placements overlap, enough for many lines and sectors.
    const LEN: usize = 4096;

    /// Numbers that a seed decides (xorshift64*).
    struct Numbers(u64);

    impl Numbers {
        fn new(seed: u64) -> Self {
            Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
        }

        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
            usize::try_from(number).unwrap() % bound
        }

        fn bytes(&mut self, len: usize) -> Vec<u8> {
            (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
        }
    }

    /// The word an atomic operation leaves in memory.
    #[expect(clippy::host_endian_bytes, reason = "a word in memory, not on a wire")]
    fn word_of(bytes: &[u8]) -> u64 {
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    /// The steps of a run: the range of each, and the medium before the first and after each step.
    struct Script {
        steps: Vec<Range<usize>>,
        versions: Vec<Vec<u8>>,
        acks: AckLog<Acknowledged>,
        log: Log,
    }

    /// A persist of `range` that returned after `steps` steps.
    #[derive(Debug)]
    struct Acknowledged {
        range: Range<usize>,
        steps: usize,
    }

    /// Places, updates words and persists at random.
    fn run(recorder: &Recorder, seed: u64, steps: usize) -> Script {
        let mut numbers = Numbers::new(seed);
        let mut script = Script {
            steps: Vec::new(),
            versions: vec![vec![0; LEN]],
            acks: AckLog::new(),
            log: recorder.log(),
        };
        for _ in 0..steps {
            match numbers.below(8) {
                0..=3 => place_somewhere(recorder, &mut numbers, &mut script),
                4 => update_a_word(recorder, &mut numbers, &mut script),
                _ => persist_somewhere(recorder, &mut numbers, &mut script),
            }
        }
        script.log = recorder.log();
        script
    }

    fn place_somewhere(recorder: &Recorder, numbers: &mut Numbers, script: &mut Script) {
        let len = match numbers.below(4) {
            0 => 1 + numbers.below(16),
            1 => 8 * (1 + numbers.below(8)),
            2 => 1 + numbers.below(300),
            _ => 256 + numbers.below(1024),
        };
        let offset = match numbers.below(2) {
            0 => numbers.below(LEN - len),
            _ => numbers.below((LEN - len) / 64) * 64,
        };
        let bytes = numbers.bytes(len);
        recorder.place(u64::try_from(offset).unwrap(), &bytes).unwrap();
        note_step(script, offset, &bytes);
    }

    fn update_a_word(recorder: &Recorder, numbers: &mut Numbers, script: &mut Script) {
        let offset = 8 * numbers.below(LEN / 8);
        let bytes = numbers.bytes(8);
        let word = word_of(&bytes);
        recorder.atomic(u64::try_from(offset).unwrap(), AtomicOp::Store(word)).unwrap();
        note_step(script, offset, &bytes);
    }

    fn persist_somewhere(recorder: &Recorder, numbers: &mut Numbers, script: &mut Script) {
        let offset = numbers.below(LEN);
        let len = 1 + numbers.below(LEN - offset);
        let range = (u64::try_from(offset).unwrap(), u64::try_from(len).unwrap());
        recorder.persist(range.0, range.1).unwrap();
        let (range, steps) = (offset..offset + len, script.steps.len());
        script.acks.note(recorder.position(), Acknowledged { range, steps });
    }

    fn note_step(script: &mut Script, offset: usize, bytes: &[u8]) {
        let mut version = script.versions.last().unwrap().clone();
        version[offset..offset + bytes.len()].copy_from_slice(bytes);
        script.steps.push(offset..offset + bytes.len());
        script.versions.push(version);
    }

    /// Whether each durability unit of the image holds a version that the unit had since the last
    /// persist that covered it.
    fn nothing_lost_or_torn(
        script: &Script,
        state: &CrashState<'_, Acknowledged>,
    ) -> Result<(), String> {
        let unit = if script.log.class == DurabilityClass::Pmem { 8 } else { 512 };
        for start in (0..LEN).step_by(unit) {
            let unit = start..start + unit;
            let covering = state
                .acknowledged
                .iter()
                .filter(|(_, ack)| ack.range.start <= unit.start && ack.range.end >= unit.end);
            let since = covering.map(|(_, ack)| ack.steps).max().unwrap_or(0);
            if !unit_is_legal(script, since, &unit, &state.image[unit.clone()]) {
                return Err(format!("bytes {unit:?} are of no version since step {since}"));
            }
        }
        Ok(())
    }

    fn unit_is_legal(script: &Script, since: usize, unit: &Range<usize>, found: &[u8]) -> bool {
        let versions = || script.versions[since..].iter().map(|version| &version[unit.clone()]);
        if versions().any(|version| version == found) {
            return true;
        }
        // A word of which some placement since covered a part may tear there, by the byte.
        let partly = |step: &Range<usize>| {
            step.start < unit.end
                && unit.start < step.end
                && !(step.start <= unit.start && unit.end <= step.end)
        };
        let may_tear = unit.len() == 8 && script.steps[since..].iter().any(partly);
        may_tear && (0..8).all(|at| versions().any(|version| version[at] == found[at]))
    }

    fn check_script(script: &Script, budget: Budget) -> Result<u64, Violation<String>> {
        check(&script.log, &script.acks, budget, |state| nothing_lost_or_torn(script, &state))
    }

    fn check_scripts(recorder: impl Fn() -> Recorder) -> Result<u64, Violation<String>> {
        (0..SCRIPTS).try_fold(0, |states, seed| {
            let script = run(&recorder(), seed, STEPS);
            let budget = Budget { states_per_point: 64, seed };
            Ok(states + check_script(&script, budget)?)
        })
    }

    const SCRIPTS: u64 = 64;
    const STEPS: usize = 60;

    #[test]
    fn persistent_memory_keeps_what_persist_acknowledged_in_every_crash_state() {
        let states = check_scripts(|| Recorder::pmem(LEN)).unwrap();
        assert!(states >= 150_000, "only {states} states were tried");
    }

    #[test]
    fn storage_keeps_what_persist_acknowledged_in_every_crash_state() {
        let states = check_scripts(|| Recorder::storage(LEN)).unwrap();
        assert!(states >= 50_000, "only {states} states were tried");
    }

    #[test]
    fn the_check_fails_on_a_machine_that_ignores_fences_or_flushes() {
        for sabotage in [Sabotage::SkipDrain, Sabotage::SkipWriteBack, Sabotage::SkipFlush] {
            let found = check_scripts(|| Recorder::sabotaged(LEN, sabotage));
            assert!(found.is_err(), "{sabotage:?} went unnoticed");
        }
    }

    #[test]
    fn the_check_fails_when_persist_trusts_a_flush_begun_earlier() {
        let found = check_scripts(|| Recorder::sabotaged(LEN, Sabotage::FlushBeganEarlier));
        found.unwrap_err();
    }

    /// Appends to a log of records behind one committing word, as every pushed write does.
    ///
    /// ```text
    ///  0        64                       64 + 100 n
    ///  +--------+-----------+-----------+-----
    ///  | count  | record 0  | record 1  | ...      record n = 100 bytes of n + 1
    ///  +--------+-----------+-----------+-----
    /// ```
    fn append(medium: &dyn Medium, number: u64) {
        let record = [u8::try_from(number + 1).unwrap(); RECORD];
        let offset = 64 + number * u64::try_from(RECORD).unwrap();
        medium.place(offset, &record).unwrap();
        medium.persist(offset, u64::try_from(RECORD).unwrap()).unwrap();
        medium.atomic(0, AtomicOp::Store(number + 1)).unwrap();
        medium.persist(0, 8).unwrap();
    }

    fn recovered_count(image: &[u8]) -> Result<u64, String> {
        let count = word_of(&image[..8]);
        for number in 0..count {
            let start = 64 + usize::try_from(number).unwrap() * RECORD;
            let whole = [u8::try_from(number + 1).unwrap(); RECORD];
            if image.get(start..start + RECORD) != Some(&whole[..]) {
                return Err(format!("record {number} of {count} is not whole"));
            }
        }
        Ok(count)
    }

    fn check_appends(recorder: &Recorder, budget: Budget) -> Result<u64, Violation<String>> {
        let mut acks = AckLog::new();
        for number in 0..RECORDS {
            append(recorder, number);
            acks.note(recorder.position(), number + 1);
        }
        check(&recorder.log(), &acks, budget, |state| {
            let promised = state.acknowledged.last().map_or(0, |(_, count)| *count);
            match recovered_count(state.image)? {
                count if count >= promised => Ok(()),
                count => Err(format!("{promised} records were acknowledged, {count} are left")),
            }
        })
    }

    const RECORD: usize = 100;
    const RECORDS: u64 = 30;

    #[test]
    fn a_committing_word_never_points_at_a_record_that_is_not_there() {
        let budget = Budget { states_per_point: 128, seed: 7 };
        for recorder in [Recorder::pmem(LEN), Recorder::storage(LEN)] {
            let states = check_appends(&recorder, budget).unwrap();
            assert!(states >= 300, "only {states} states were tried");
        }
    }

    #[test]
    fn the_check_fails_when_a_committing_word_is_not_ordered() {
        let budget = Budget { states_per_point: 128, seed: 7 };
        for sabotage in [
            Sabotage::SkipDrain,
            Sabotage::SkipWriteBack,
            Sabotage::SkipFlush,
            Sabotage::FlushBeganEarlier,
        ] {
            let found = check_appends(&Recorder::sabotaged(LEN, sabotage), budget);
            assert!(found.is_err(), "{sabotage:?} went unnoticed");
        }
    }

    #[test]
    fn a_second_crash_after_recovery_keeps_the_records_recovered_before() {
        let first = Recorder::pmem(LEN);
        (0..10).for_each(|number| append(&first, number));
        let log = first.log();
        let mut images = BTreeMap::new();
        let every = Budget { states_per_point: 16, seed: 3 };
        let none: AckLog<()> = AckLog::new();
        check(&log, &none, every, |state| {
            let count = recovered_count(state.image)?;
            images.entry(count).or_insert_with(|| state.image.to_vec());
            Ok::<(), String>(())
        })
        .unwrap();
        assert_eq!(images.len(), 11, "each count is found after some crash");
        for (count, image) in images {
            let second = Recorder::after_crash(&log, image);
            append(&second, count);
            check(&second.log(), &none, every, |state| match recovered_count(state.image)? {
                found if found >= count => Ok(()),
                found => Err(format!("{count} records were recovered, {found} are left")),
            })
            .unwrap();
        }
    }

    /// Runs several threads, each with its own part of the medium and its own acknowledgements.
    fn check_threads(recorder: &Recorder, budget: Budget) -> Result<u64, Violation<String>> {
        const PART: usize = LEN / 4;
        let acks = Mutex::new(AckLog::new());
        thread::scope(|scope| {
            for part in 0..4_usize {
                let (acks, start) = (&acks, u64::try_from(part * PART).unwrap());
                scope.spawn(move || {
                    for round in 1..=20_u8 {
                        recorder.place(start, &[round; PART]).unwrap();
                        recorder.persist(start, u64::try_from(PART).unwrap()).unwrap();
                        acks.lock().unwrap().note(recorder.position(), (part, round));
                    }
                });
            }
        });
        check(&recorder.log(), &acks.into_inner().unwrap(), budget, |state| {
            let mut promised = [0; 4];
            for (_, (part, round)) in state.acknowledged {
                promised[*part] = promised[*part].max(*round);
            }
            for (part, promised) in promised.into_iter().enumerate() {
                let found = &state.image[part * PART..(part + 1) * PART];
                if found.iter().any(|round| *round < promised) {
                    return Err(format!("part {part} was acknowledged at round {promised}"));
                }
            }
            Ok(())
        })
    }

    #[test]
    fn threads_that_share_a_flush_keep_each_acknowledged_placement() {
        let budget = Budget { states_per_point: 32, seed: 1 };
        for recorder in [Recorder::pmem(LEN), Recorder::storage(LEN)] {
            let states = check_threads(&recorder, budget).unwrap();
            assert!(states >= 500, "only {states} states were tried");
        }
    }

    /// This holds because every placement ends with its own fence.
    #[test]
    fn a_persist_covers_the_placements_of_another_thread() {
        let recorder = Recorder::pmem(LEN);
        let mut acks = AckLog::new();
        for (round, len) in (1_u8..).zip([1, 8, 64, 255, 256, 1000, 4000]) {
            recorder.place(61, &vec![round; len]).unwrap();
            let persisted = thread::scope(|scope| {
                scope.spawn(|| recorder.persist(0, u64::try_from(LEN).unwrap())).join().unwrap()
            });
            persisted.unwrap();
            acks.note(recorder.position(), (round, len));
        }
        let budget = Budget { states_per_point: 64, seed: 5 };
        check(&recorder.log(), &acks, budget, |state| {
            let Some((_, (round, len))) = state.acknowledged.last() else { return Ok(()) };
            match state.image[61..61 + len].iter().all(|byte| byte >= round) {
                true => Ok(()),
                false => Err(format!("{len} bytes of round {round} are not all there")),
            }
        })
        .unwrap();
    }

    /// Places 2048 bytes in parts, calls `end`, lets another thread persist, and checks the log.
    fn check_parts(end: impl Fn(&Recorder)) -> Result<u64, Violation<&'static str>> {
        let recorder = Recorder::pmem(LEN);
        let parts = [(0, 1000), (1000, 24), (1024, 1000)];
        parts.iter().for_each(|(at, len)| recorder.try_place_part(*at, &vec![7; *len]).unwrap());
        end(&recorder);
        let persist = || recorder.persist(0, 2048);
        thread::scope(|scope| scope.spawn(persist).join().unwrap()).unwrap();
        let mut acks = AckLog::new();
        acks.note(recorder.position(), ());
        let budget = Budget { states_per_point: 64, seed: 9 };
        check(&recorder.log(), &acks, budget, |state| {
            match state.acknowledged.is_empty() || state.image[..2024] == [7; 2024] {
                true => Ok(()),
                false => Err("a part is lost"),
            }
        })
    }

    #[test]
    fn parts_are_covered_once_their_thread_has_ended_the_placement() {
        check_parts(|recorder| recorder.try_place(2024, &[7; 24]).unwrap()).unwrap();
        check_parts(|recorder| recorder.try_place(0, &[]).unwrap()).unwrap();
        check_parts(|_| ()).unwrap_err();
    }
}
