//! Updates of a row of 32 bytes a second, each a transaction: redb with its own file, and with the tail of a log, in turns.
//!
//! ```sh
//! cargo run --release -p landfast-redb-backend --example redb_updates -- DIRECTORY ROUNDS SECONDS
//! ```
//! One line for each turn: the arm, a tab, and its updates a second. `DIRECTORY` is on a disk.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use logged::{LocalBase, Logged, Members, Options, Place};
use redb::{Builder, Database, TableDefinition};
use redb_backend::LoggedBackend;
use server::{Running, Server, ServerConfig, ShareConfig, Users};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("t");
const LOG_LEN: u64 = 20 << 20;

fn serve(share: &Path) -> Outcome<(tokio::runtime::Runtime, Running, String)> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut config = ServerConfig::new("127.0.0.1:0".parse()?);
    config.rdma_listen = Some("127.0.0.1:0".parse()?);
    let mut exported = ShareConfig::new("s", share);
    exported.emulate_persistence = true;
    config.shares.push(exported);
    config.users = Users::with_passwords([("u", "p")]);
    let running = runtime.block_on(Server::start(config))?;
    let url = format!("smb://u:p@127.0.0.1:{}/s", running.tcp_address().port());
    Ok((runtime, running, url))
}

fn open(directory: &Path, name: &str, places: &[String]) -> Outcome<Database> {
    let places = places.iter().map(|place| place.parse()).collect::<Result<Vec<Place>, _>>()?;
    let members = Members {
        places,
        len: LOG_LEN,
        emulate_persistence: true,
        given_up: logged::MemberSet::default(),
    };
    let base = Arc::new(LocalBase::open(&directory.join(name))?);
    let side = Arc::new(LocalBase::open(&directory.join(format!("{name}-side")))?);
    let file = Logged::open(base, side, &members, &Options::default())?;
    Ok(Builder::new().create_with_backend(LoggedBackend::new(file))?)
}

fn updates(database: &Database, turn: Duration) -> Outcome<f64> {
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < turn {
        let write = database.begin_write()?;
        let key = u64::from(count % 1000);
        write.open_table(TABLE)?.insert(key, [u8::try_from(count % 251)?; 32].as_slice())?;
        write.commit()?;
        count += 1;
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, rounds, seconds] = &arguments[..] else {
        return Err("usage: redb_updates DIRECTORY ROUNDS SECONDS".into());
    };
    let disk = tempfile::tempdir_in(directory)?;
    let memory = [tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir_in("/dev/shm")?];
    let servers = [serve(memory[0].path())?, serve(memory[1].path())?];
    let in_memory = |name: &str| memory[0].path().join(name).display().to_string();
    let remote = |server: usize, name: &str| format!("{}/{name}", servers[server].2);
    let on_disk = disk.path().join("tail.log").display().to_string();
    let arms = [
        ("own", Database::create(disk.path().join("own.redb"))?),
        ("tail, local memory", open(disk.path(), "a", &[in_memory("a.log")])?),
        ("tail, remote", open(disk.path(), "b", &[remote(0, "b.log")])?),
        (
            "tail, mirror of two remote",
            open(disk.path(), "c", &[remote(0, "c.log"), remote(1, "c.log")])?,
        ),
        ("tail, on the same disk", open(disk.path(), "d", &[on_disk])?),
    ];
    let turn = Duration::from_secs_f64(seconds.parse()?);
    for _ in 0..rounds.parse::<usize>()? {
        for (name, database) in &arms {
            println!("{name}\t{:.1}", updates(database, turn)?);
        }
    }
    drop(arms);
    for (runtime, running, _) in servers {
        runtime.block_on(running.shutdown());
    }
    Ok(())
}
