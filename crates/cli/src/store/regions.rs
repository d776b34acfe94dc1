//! The commands on regions and servers.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};
use store::meta::record::{CopyState, RegionRecord, RegionState, ServerRecord, ServerState};
use store::{Allocation, Region, Rights, Store, StoreError, Token};

use super::args::{Create, Listed, MakeToken, Named, Read, StoreCommand, Used, Write};
use super::failure::StoreFailure;
use super::opened::{open, open_with};
use crate::failure::Failure;
use crate::output;

pub(super) fn run(command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Create(create_) => create(create_),
        StoreCommand::List(listed) => list(listed),
        StoreCommand::Info(named) => info(named),
        StoreCommand::Read(read_) => read(read_),
        StoreCommand::Write(write_) => write(write_),
        StoreCommand::Free(of) => {
            Ok(open(&of.which)?.free(&of.name).map_err(StoreFailure::from)?)
        }
        StoreCommand::Servers(listed) => servers(listed),
        StoreCommand::Rebuild(named) => rebuild(named),
        StoreCommand::Token(token_) => token(token_),
        StoreCommand::Revoke(of) => {
            Ok(open(&of.which)?.revoke(&of.name).map_err(StoreFailure::from)?)
        }
        StoreCommand::Serve(_) | StoreCommand::Bench(_) => Ok(()),
    }
}

fn create(options: &Create) -> Result<(), Failure> {
    let wanted = Allocation {
        unit: options.stripe,
        width: options.width,
        copies: options.copies,
        ..Allocation::new(options.size, options.class.into())
    };
    let store = open(&options.which)?;
    let record = store.create(&options.name, &wanted).map_err(StoreFailure::from)?;
    show(&options.name, &record, options.json)
}

fn list(options: &Listed) -> Result<(), Failure> {
    let regions = open(&options.which)?.regions().map_err(StoreFailure::from)?;
    if options.json {
        let all: Vec<Value> = regions.iter().map(|(name, one)| described(name, one)).collect();
        return output::say(&format!("{}\n", json!({ "regions": all })));
    }
    let mut text = format!(
        "{:<32} {:>16} {:>6} {:>6} {:<8} state\n",
        "name", "bytes", "pieces", "copies", "class"
    );
    for (name, one) in &regions {
        let (size, pieces) = (one.size, one.pieces.len());
        let (copies, class, state) = (one.copies, one.class, state_of(one));
        text.push_str(&format!(
            "{name:<32} {size:>16} {pieces:>6} {copies:>6} {class:<8} {state}\n"
        ));
    }
    output::say(&text)
}

fn info(options: &Named) -> Result<(), Failure> {
    let record = open(&options.of.which)?.info(&options.of.name).map_err(StoreFailure::from)?;
    show(&options.of.name, &record, options.json)
}

fn read(options: &Read) -> Result<(), Failure> {
    let region = map(&options.used, Rights::READ)?;
    let limit = region.len();
    if options.offset > limit {
        let (offset, len) = (options.offset, options.len.unwrap_or(0));
        return Err(StoreFailure::from(StoreError::OutOfRange { offset, len, limit }).into());
    }
    let end = match options.len {
        Some(len) => options.offset.saturating_add(len),
        None => limit,
    };
    let mut out = std::io::stdout().lock();
    let mut at = options.offset;
    let mut buffer = vec![0; CHUNK];
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        region.read(at, &mut buffer[..len]).map_err(StoreFailure::from)?;
        out.write_all(&buffer[..len]).map_err(Failure::Output)?;
        at += u64::try_from(len).expect("a chunk is short");
    }
    out.flush().map_err(Failure::Output)
}

fn write(options: &Write) -> Result<(), Failure> {
    output::check_input()?;
    let region = map(&options.used, Rights::READ | Rights::WRITE)?;
    let mut input = std::io::stdin().lock();
    let mut at = options.offset;
    let mut buffer = vec![0; CHUNK];
    loop {
        let len = input.read(&mut buffer).map_err(Failure::system("cannot read standard input"))?;
        if len == 0 {
            break;
        }
        region.write(at, &buffer[..len]).map_err(StoreFailure::from)?;
        at += u64::try_from(len).expect("a chunk is short");
    }
    if options.durable && at > options.offset {
        region.commit(options.offset, at - options.offset).map_err(StoreFailure::from)?;
    }
    Ok(())
}

fn servers(options: &Listed) -> Result<(), Failure> {
    let servers = open(&options.which)?.servers().map_err(StoreFailure::from)?;
    if options.json {
        let described = |(name, one): (&String, &ServerRecord)| {
            json!({ "name": name, "control": one.control, "class": one.class, "capacity": one.capacity,
                    "free": one.free, "incarnation": one.incarnation, "state": one.state,
                    "emulated_persistence": one.emulated })
        };
        let all: Vec<Value> = servers.iter().map(described).collect();
        return output::say(&format!("{}\n", json!({ "servers": all })));
    }
    let mut text = format!(
        "{:<24} {:<22} {:<8} {:>16} {:>16} state\n",
        "name", "control", "class", "bytes", "free"
    );
    for (name, one) in &servers {
        let state = if one.state == ServerState::Alive { "alive" } else { "dead or stopped" };
        let (control, class) = (one.control.to_string(), one.class.to_string());
        let (capacity, free) = (one.capacity, one.free);
        text.push_str(&format!(
            "{name:<24} {control:<22} {class:<8} {capacity:>16} {free:>16} {state}\n"
        ));
    }
    output::say(&text)
}

fn rebuild(options: &Named) -> Result<(), Failure> {
    let store = open(&options.of.which)?;
    let done = store.rebuild(&options.of.name).map_err(StoreFailure::from)?;
    let store::Rebuilt { copies, bytes, missing, silent } = done;
    let text = match options.json {
        true => json!({ "copies": copies, "bytes": bytes, "missing": missing, "silent": silent })
            .to_string(),
        false => {
            format!("{copies} copies filled, {bytes} bytes copied, {missing} copies still missing")
        }
    };
    output::say(&format!("{text}\n"))?;
    // Whoever goes on to stop another server counts on every copy.
    match (missing, silent) {
        (0, _) => Ok(()),
        (_, 0) => Err(StoreFailure::Missing { missing }.into()),
        _ => Err(StoreFailure::Silent { missing, silent }.into()),
    }
}

fn token(options: &MakeToken) -> Result<(), Failure> {
    let store = open(&options.of.which)?;
    let rights = if options.write { Rights::READ | Rights::WRITE } else { Rights::READ };
    let lifetime = Duration::from_secs(options.seconds);
    let token = store.token(&options.of.name, rights, lifetime).map_err(StoreFailure::from)?;
    output::say(&format!("{}\n", token.expose()))
}

/// Maps by the token that was given, or by the key.
fn map(options: &Used, rights: Rights) -> Result<Region, Failure> {
    let of = &options.of;
    let Some(token) = &options.token else {
        return Ok(open(&of.which)?.map(&of.name, rights).map_err(StoreFailure::from)?);
    };
    let token: Token = token.parse().map_err(StoreFailure::from)?;
    let store: Store = open_with(&of.which, None)?;
    Ok(store.map_by_token(&of.name, token).map_err(StoreFailure::from)?)
}

fn show(name: &str, record: &RegionRecord, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return output::say(&format!("{}\n", described(name, record)));
    }
    let mut text = format!(
        "region {name}: {} bytes, class {}, {} copies, units of {} bytes, {}\n",
        record.size,
        record.class,
        record.copies,
        record.unit,
        state_of(record)
    );
    for (number, piece) in (0_u32..).zip(&record.pieces) {
        text.push_str(&format!(
            "  piece {number}: {} bytes at",
            record.striping().piece_len(number)
        ));
        for copy in &piece.copies {
            let state = match copy.state {
                CopyState::InSync => "in sync",
                CopyState::Syncing => "being filled",
                CopyState::Stale => "stale",
            };
            text.push_str(&format!(" {} ({state})", copy.server));
        }
        text.push('\n');
    }
    output::say(&text)
}

fn described(name: &str, record: &RegionRecord) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    value["name"] = json!(name);
    value
}

fn state_of(record: &RegionRecord) -> &'static str {
    let wanted = usize::try_from(record.copies).unwrap_or(usize::MAX);
    let in_sync = |piece: &store::meta::record::PieceRecord| {
        piece.copies.iter().filter(|copy| copy.state == CopyState::InSync).count()
    };
    match record.state {
        RegionState::Creating => "being made",
        RegionState::Freeing => "being removed",
        RegionState::Ready if record.pieces.iter().all(|piece| in_sync(piece) >= wanted) => "whole",
        RegionState::Ready => "lacks copies",
    }
}

const CHUNK: usize = 4 << 20;
