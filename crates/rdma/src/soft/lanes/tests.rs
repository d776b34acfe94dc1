//! Tests of the order in which batches have their turns.

use super::*;

fn batch_of(job: Job<u64>) -> u64 {
    match job {
        Job::Run(batch, _) => batch,
        Job::Commit(group) => panic!("{group:?} does not wait for a commit"),
    }
}

const A: Site = Site { device: 1, file: 7 };

#[test]
fn batches_that_arrive_during_a_commit_share_the_next() {
    let mut lanes = Lanes::new(16);
    lanes.lay_aside(A, 0);
    let (lane, job) = lanes.take().unwrap();
    assert_eq!(job, Job::Commit(vec![0]));
    (1..1000).for_each(|batch| lanes.lay_aside(A, batch));
    assert!(lanes.take().is_none(), "they hold no worker, and the commit under way is not theirs");
    lanes.committed(lane, Vec::new());
    lanes.done(lane);
    let (_, job) = lanes.take().unwrap();
    assert_eq!(job, Job::Commit((1..1000).collect()));
}

#[test]
fn a_commit_waits_for_the_batches_queued_before_it_and_no_others() {
    let mut lanes = Lanes::new(1);
    (0..5).for_each(|batch| lanes.push(A.file, batch));
    let mut aside = 0;
    let group = loop {
        let (lane, job) = lanes.take().unwrap();
        lanes.done(lane);
        match job {
            Job::Run(batch, _) => lanes.lay_aside(A, batch),
            Job::Commit(group) => break group,
        }
        aside += 1;
        // A stream of further batches does not delay the commit.
        lanes.push(A.file, 100 + aside);
    };
    assert_eq!(group.len(), 5);
}

#[test]
fn files_that_share_a_lane_share_no_commit() {
    let mut lanes = Lanes::new(16);
    lanes.lay_aside(A, 1);
    lanes.lay_aside(Site { device: 2, ..A }, 2);
    lanes.lay_aside(A, 3);
    let (lane, job) = lanes.take().unwrap();
    assert_eq!(job, Job::Commit(vec![1, 3]));
    lanes.committed(lane, Vec::new());
    lanes.done(lane);
    assert_eq!(lanes.take().unwrap().1, Job::Commit(vec![2]));
}

/// Takes all jobs that may be taken; returns the files they came from.
fn taken(lanes: &mut Lanes<u64>) -> Vec<u64> {
    std::iter::from_fn(|| lanes.take().map(|(_, job)| batch_of(job))).collect()
}

#[test]
fn a_file_that_hangs_leaves_workers_to_every_other() {
    let mut lanes = Lanes::new(16);
    let mut shares = Vec::new();
    for file in 1..=5 {
        for _ in 0..100 {
            lanes.push(file, file);
        }
        let share = taken(&mut lanes);
        assert!(share.iter().all(|from| *from == file), "the others have had their share");
        shares.push(share.len());
    }
    assert_eq!(shares, [8, 4, 2, 1, 1]);
    assert_eq!(lanes.wanted(), 16, "what waits wants no worker");
}

#[test]
fn long_work_takes_at_most_half_of_the_workers() {
    let mut lanes = Lanes::new(16);
    for file in 1..=9 {
        (0..100).for_each(|_| lanes.push_long(file, file));
    }
    assert_eq!(taken(&mut lanes).len(), 8);
    assert_eq!(lanes.wanted(), 8, "what waits wants no worker");
    lanes.push(10, 10);
    lanes.push(1, 1);
    let mut short = taken(&mut lanes);
    short.sort_unstable();
    assert_eq!(short, [1, 10]);
}

#[test]
fn a_single_worker_alternates_long_work_with_other_work() {
    let mut lanes = Lanes::new(1);
    lanes.push_long(1, 1);
    lanes.push(2, 2);
    let (lane, job) = lanes.take().unwrap();
    assert_eq!((lanes.long_at_work, batch_of(job)), (1, 1));
    lanes.push_long(1, 1);
    lanes.done(lane);
    let (lane, job) = lanes.take().unwrap();
    assert_eq!((lanes.long_at_work, batch_of(job)), (0, 2));
    lanes.done(lane);
    assert_eq!(batch_of(lanes.take().unwrap().1), 1);
}

#[test]
fn long_work_ends_under_endless_short_work_of_its_lane() {
    let mut lanes = Lanes::new(4);
    lanes.push_long(1, 100);
    (0..4).for_each(|_| lanes.push(1, 1));
    for taken in 0..=PASSED_MAX {
        let (lane, job) = lanes.take().unwrap();
        lanes.done(lane);
        if batch_of(job) == 100 {
            assert_eq!(taken, PASSED_MAX, "short work goes first");
            return;
        }
        lanes.push(1, 1);
    }
    panic!("it waits for short work without end");
}

#[test]
fn long_work_that_has_waited_precedes_long_work_of_other_files() {
    let mut lanes = Lanes::new(4);
    (0..2).for_each(|_| lanes.push_long(1, 1));
    // Half of the workers, which file 1 asks for again whenever there is room.
    let mut of_long: VecDeque<_> = (0..2).map(|_| lanes.take().unwrap().0).collect();
    lanes.push_long(2, 200);
    lanes.push(2, 2);
    let (mut of_short, _) = lanes.take().unwrap();
    for _ in 0..=PASSED_MAX {
        lanes.push(2, 2);
        lanes.done(of_short);
        of_short = lanes.take().unwrap().0;
        lanes.push_long(1, 1);
        lanes.done(of_long.pop_front().unwrap());
        let (lane, job) = lanes.take().unwrap();
        if batch_of(job) == 200 {
            return;
        }
        of_long.push_back(lane);
    }
    panic!("it waits for others without end");
}

#[test]
fn short_work_of_files_has_turns_while_long_work_is_due() {
    let mut lanes = Lanes::new(4);
    (0..2).for_each(|_| lanes.push_long(1, 100));
    let of_long = [lanes.take().unwrap().0, lanes.take().unwrap().0];
    lanes.push_long(2, 200);
    let turn = |lanes: &mut Lanes<u64>| {
        let (lane, job) = lanes.take().unwrap();
        lanes.done(lane);
        batch_of(job)
    };
    for _ in 0..2 * PASSED_MAX {
        lanes.push(2, 2);
        turn(&mut lanes);
    }
    for file in [2, 2, 3, 3] {
        lanes.push(file, file);
    }
    let order: Vec<_> = (0..4).map(|_| turn(&mut lanes)).collect();
    assert_eq!(order, [3, 2, 3, 2]);
    of_long.into_iter().for_each(|lane| lanes.done(lane));
    assert_eq!(turn(&mut lanes), 200);
}

#[test]
fn one_worker_serves_all_files_in_turn() {
    let mut lanes = Lanes::new(1);
    for batch in [1, 1, 1, 2, 3] {
        lanes.push(batch, batch);
    }
    let mut order = Vec::new();
    while let Some((lane, job)) = lanes.take() {
        assert!(lanes.take().is_none());
        lanes.done(lane);
        order.push(batch_of(job));
    }
    assert_eq!(order, [1, 2, 3, 1, 1]);
}

#[test]
fn lanes_are_reused_and_bounded() {
    let mut lanes = Lanes::new(4);
    for file in 0..1000 {
        lanes.push(file, file);
        let (lane, job) = lanes.take().unwrap();
        assert_eq!(batch_of(job), file);
        lanes.done(lane);
    }
    assert_eq!(lanes.lanes.len(), 1);
    for file in 0..1000 {
        lanes.push(file, file);
    }
    assert_eq!(lanes.lanes.len(), LANES_MAX);
    let mut count = 0;
    while let Some((lane, _)) = lanes.take() {
        lanes.done(lane);
        count += 1;
    }
    assert_eq!(count, 1000);
}
