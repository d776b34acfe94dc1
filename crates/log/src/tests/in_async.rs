//! A log for async code.

use std::sync::Arc;

use super::memory::{create, in_memory, open, records};
use crate::{AsyncLog, LogError, Lsn};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn tasks_on_one_thread_commit_together() {
    let medium = in_memory(1);
    let log = Arc::new(AsyncLog::new(Arc::new(create(&medium))).unwrap());
    block_on(async {
        let tasks: Vec<_> = (0..20_u8)
            .map(|number| {
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let lsn = log.append_commit(&[number]).await.unwrap();
                    assert!(log.log().durable_lsn() > lsn);
                    lsn
                })
            })
            .collect();
        let mut found = Vec::new();
        for task in tasks {
            found.push(task.await.unwrap());
        }
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 20);
        let beyond = log.commit(Lsn(1 << 30)).await;
        assert!(matches!(beyond, Err(LogError::NoRecord { .. })));
    });
    drop(log);
    assert_eq!(records(&open(&medium)).len(), 20);
}

#[test]
fn a_task_waits_for_room_without_its_thread() {
    let medium = in_memory(1);
    let log = AsyncLog::new(Arc::new(create(&medium))).unwrap();
    let appended = block_on(async {
        let writer = async {
            let mut lsns = Vec::new();
            for number in 0..40_u8 {
                lsns.push(log.append(&[number; 900]).await.unwrap());
            }
            log.commit(lsns[39]).await.unwrap();
            lsns.len()
        };
        // On the same thread: it runs because the writer gives the thread up while the log is full.
        let trimmer = async {
            loop {
                let durable = log.log().durable_lsn();
                log.log().trim(durable).unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { count = writer => count, () = trimmer => unreachable!() }
    });
    assert_eq!(appended, 40);
}

#[test]
fn a_task_that_is_dropped_leaves_no_waker() {
    let log = AsyncLog::new(Arc::new(create(&in_memory(1)))).unwrap();
    while log.log().append(&[1; 900]).is_ok() {}
    block_on(async {
        tokio::select! {
            biased;
            _ = log.append(&[2; 900]) => unreachable!("the log is full"),
            () = tokio::task::yield_now() => {}
        }
    });
    let gate = log.log().gates().lock();
    assert_eq!(gate.wanting_room, 0);
    assert_eq!(gate.tasks(), 0);
}
