//! What a program does that takes a lock out of order: it goes on with an error in its log, or it panics, as its
//! environment says. A test runs its own program again to see that.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

use std::process::{Command, Output};

use basics::ordered::{LEAVES, Mutex, VARIABLE};

basics::ranks! {
    const ALL;
    Outer = 1, "the outer lock";
    Inner = 2, "the inner lock";
    Leaf = LEAVES, "the leaf";
}

// The program that the tests run: three violations of two pairs.
#[test]
#[ignore = "run by the other tests"]
fn violates() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let (outer, inner) = (Mutex::<_, Outer>::new(()), Mutex::<_, Inner>::new(()));
    let leaf = Mutex::<_, Leaf>::new(());
    for _ in 0..2 {
        let _held = inner.lock();
        drop(outer.lock());
    }
    let _held = leaf.lock();
    drop(outer.lock());
    eprintln!("the program went on with {} ranks", ALL.len());
}

fn violating(variable: Option<&str>) -> (Output, String) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "violates", "--ignored", "--nocapture"]).env_remove(VARIABLE);
    variable.map(|set| program.env(VARIABLE, set));
    let output = program.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn a_program_in_service_logs_each_pair_once_and_goes_on() {
    for variable in [None, Some("log")] {
        let (output, said) = violating(variable);
        assert!(
            output.status.success() && said.contains("the program went on with 3 ranks"),
            "{said}"
        );
        let reports: Vec<_> = said.lines().filter(|line| line.contains("is violated")).collect();
        assert_eq!(reports.len(), 2, "{said}");
        assert!(
            reports[0].contains("ERROR") && reports[0].contains("the inner lock (rank 2)"),
            "{said}"
        );
        assert!(reports[1].contains("the leaf (rank 32)"), "{said}");
    }
}

#[test]
fn a_program_under_test_panics_at_the_first_violation() {
    let (output, said) = violating(Some("panic"));
    assert!(!output.status.success() && !said.contains("the program went on"), "{said}");
    assert!(
        said.contains("the outer lock (rank 1) is locked while this thread holds the inner lock"),
        "{said}"
    );
}
