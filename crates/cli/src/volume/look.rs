//! `landfast volume info`, `check`, `repair` and `list`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use block::BlockDevice;
use serde_json::{Value, json};
use volume::{Access, LayoutVersion, Report, Volume, VolumeError};

use super::args::{List, Mode, One};
use super::{VolumeFailure, marking, opened};
use crate::failure::Failure;
use crate::output;

/// Shows what a volume is.
pub(crate) fn info(one: &One) -> Result<(), Failure> {
    let failed = Failure::volume("cannot read the volume", &one.path);
    output::say(&match one.json {
        true => format!("{}\n", facts(&one.path).map_err(failed)?),
        false => describe(&one.path).map_err(failed)?,
    })
}

/// What a volume is, for people.
pub(super) fn describe(path: &Path) -> Result<String, VolumeFailure> {
    let facts = facts(path)?;
    let text = |name: &str| facts[name].as_str().unwrap_or_default().to_owned();
    let mut out = format!(
        "{}: mode {}, {} bytes in sectors of {}, class {}\n",
        path.display(),
        text("mode"),
        facts["size"],
        facts["sector"],
        text("class")
    );
    let list = |name: &str| facts[name].as_array().cloned().unwrap_or_default();
    for (number, arena) in list("arenas").iter().enumerate() {
        let _ = writeln!(
            out,
            "  arena {number}: {} bytes at {:#x}, {} sectors, {} lanes ({} lost), map at {:#x}, flog at {:#x}",
            arena["len"],
            arena["start"].as_u64().unwrap_or_default(),
            arena["sectors"],
            arena["lanes"],
            arena["lanes_lost"],
            arena["map"].as_u64().unwrap_or_default(),
            arena["flog"].as_u64().unwrap_or_default(),
        );
    }
    if !text("uuid").is_empty() {
        let _ = writeln!(out, "  layout {}, identity {}", text("layout"), text("uuid"));
    }
    for damage in list("damage") {
        let _ = writeln!(out, "  DAMAGED {}", damage.as_str().unwrap_or_default());
    }
    Ok(out)
}

fn facts(path: &Path) -> Result<Value, VolumeFailure> {
    let file = opened::file(path, Access::ReadOnly)?;
    let medium = opened::medium(&file, false)?;
    let class = medium.class().to_string();
    if marking::marked(&file) == Some(Mode::Dax) {
        // What a store that is flushed makes durable at once is a word.
        return Ok(json!({ "mode": "dax", "size": medium.len(), "sector": 8, "class": class }));
    }
    if marking::is_marked(&file) || opened::mode(&medium) == Mode::File {
        let device = block::FileDevice::new(file)?;
        let (size, sector) = (device.geometry().size, device.geometry().block);
        return Ok(json!({ "mode": "file", "size": size, "sector": sector, "class": class }));
    }
    let volume = Volume::open(medium, Access::ReadOnly)?;
    let arenas: Vec<Value> = volume
        .arena_facts()
        .into_iter()
        .map(|arena| {
            json!({
                "start": arena.start, "len": arena.len, "sectors": arena.sectors,
                "lanes": arena.lanes, "lanes_lost": arena.lanes_lost,
                "map": arena.map, "flog": arena.flog,
            })
        })
        .collect();
    let damage: Vec<String> = volume.damage().iter().map(ToString::to_string).collect();
    let layout = match volume.version() {
        LayoutVersion::V1_1 => "1.1",
        LayoutVersion::V2_0 => "2.0",
    };
    let geometry = volume.geometry();
    Ok(json!({
        "mode": "block", "size": geometry.size, "sector": geometry.block, "class": class,
        "layout": layout, "uuid": dashed(volume.uuid()), "arenas": arenas, "damage": damage,
    }))
}

fn dashed(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Checks a volume.
pub(crate) fn check(one: &One) -> Result<(), Failure> {
    let failed = Failure::volume("cannot check the volume", &one.path);
    let looked = || -> Result<Option<Report>, VolumeFailure> {
        let file = opened::file(&one.path, Access::ReadOnly)?;
        opened::lock(&file)?;
        // It has no structure that could be damaged: that is no failure of a command that looks for damage.
        if marking::is_marked(&file) {
            return Ok(None);
        }
        Ok(Some(volume::check(&opened::medium(&file, false)?)?))
    };
    let Some(report) = looked().map_err(&failed)? else {
        return output::say(match one.json {
            true => "{\"checked\":false}\n",
            false => "nothing to check: a volume of mode file or dax is its bytes alone\n",
        });
    };
    output::say(&worded(&report, one.json))?;
    if report.is_whole() { Ok(()) } else { Err(failed(VolumeFailure::Damaged)) }
}

/// Repairs a volume.
pub(crate) fn repair(one: &One) -> Result<(), Failure> {
    let failed = Failure::volume("cannot repair the volume", &one.path);
    let mended = || -> Result<Report, VolumeFailure> {
        let file = opened::file(&one.path, Access::ReadWrite)?;
        opened::lock(&file)?;
        structured(&file)?;
        // What it lies in can lose it or not: either way it becomes as durable as it was.
        Ok(volume::repair(&opened::medium(&file, true)?)?)
    };
    let report = mended().map_err(&failed)?;
    output::say(&worded(&report, one.json))?;
    if report.is_whole() { Ok(()) } else { Err(failed(VolumeFailure::Damaged)) }
}

// The bytes of a volume of mode file are its clients', whatever they look like.
fn structured(file: &fs::File) -> Result<(), VolumeFailure> {
    if marking::is_marked(file) { Err(VolumeFailure::Plain) } else { Ok(()) }
}

fn worded(report: &Report, as_json: bool) -> String {
    let damage: Vec<String> = report.damage.iter().map(ToString::to_string).collect();
    if as_json {
        let facts = json!({
            "arenas": report.arenas, "normal": report.normal, "zero": report.zero,
            "lost": report.lost, "interrupted": report.interrupted,
            "damage": damage, "more_damage": report.more_damage,
        });
        return format!("{facts}\n");
    }
    let mut out = format!(
        "{} arenas: {} sectors with bytes, {} of zeroes, {} lost; {} writes to end after a crash\n",
        report.arenas, report.normal, report.zero, report.lost, report.interrupted
    );
    for damage in damage {
        let _ = writeln!(out, "  DAMAGED {damage}");
    }
    if report.more_damage > 0 {
        let _ = writeln!(out, "  and {} more", report.more_damage);
    }
    out
}

/// Lists the volumes of a directory.
pub(crate) fn list(list: &List) -> Result<(), Failure> {
    let unreadable = || Failure::local("cannot list", &list.directory);
    let entries = fs::read_dir(&list.directory).map_err(unreadable())?;
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.is_file() && is_volume(path)) {
        let shown = match describe(path) {
            Ok(text) => text,
            Err(error) => format!("{}: {error}\n", path.display()),
        };
        output::say(&shown)?;
    }
    Ok(())
}

/// Whether a file is a volume, or was one before it was damaged.
fn is_volume(path: &Path) -> bool {
    let looked = || -> Result<bool, VolumeFailure> {
        let file = opened::file(path, Access::ReadOnly)?;
        if marking::is_marked(&file) {
            return Ok(true);
        }
        let medium = opened::medium(&file, false)?;
        match Volume::open(medium, Access::ReadOnly) {
            Ok(_) | Err(VolumeError::MediaDamaged(_)) => Ok(true),
            Err(_) => Ok(false),
        }
    };
    looked().unwrap_or(false)
}
