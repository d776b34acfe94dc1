//! Options of the command line that combine several values, and options that change settings of the
//! file.

use std::path::PathBuf;

use serde::{Deserialize as _, Deserializer};
use server::Announced;

use super::{Guests, Kerberos, Residency, Share, SharedVolume, User};
use crate::args::Serve;
use crate::failure::Failure;
use crate::size::size;
use crate::volume::name_and_path;

pub(super) fn kerberos(options: &Serve, file: Option<Kerberos>) -> Option<Kerberos> {
    let Some(keytab) = &options.keytab else { return file };
    let mut kerberos = file.unwrap_or_default();
    kerberos.keytab.clone_from(keytab);
    if options.principal.is_some() {
        kerberos.principal.clone_from(&options.principal);
    }
    kerberos.users.extend(options.kerberos_users.iter().cloned());
    Some(kerberos)
}

pub(super) fn share(text: &str) -> Result<Share, Failure> {
    let refused = |why| Failure::ConfigValue { what: "--share", value: text.into(), why };
    let (name, path) = text.split_once('=').ok_or_else(|| refused("write NAME=PATH"))?;
    if name.is_empty() || path.is_empty() {
        return Err(refused("both the name and the path must be there"));
    }
    Ok(Share::new(name, path.into()))
}

pub(super) fn device(text: &str, shares: &mut [Share]) -> Result<(), Failure> {
    let refused = |why| Failure::ConfigValue { what: "--device", value: text.into(), why };
    let (name, path) = text.split_once('=').ok_or_else(|| refused("write SHARE=PATH"))?;
    let share = named(name, shares).ok_or_else(|| refused(NO_SHARE))?;
    if path.is_empty() {
        return Err(refused("the path must be there"));
    }
    share.devices.push(path.into());
    Ok(())
}

pub(super) fn volume(text: &str, shares: &mut [Share]) -> Result<(), Failure> {
    let refused = |why| Failure::ConfigValue { what: "--volume", value: text.into(), why };
    let (share, named) =
        text.split_once('=').ok_or_else(|| refused("write SHARE=PATH or SHARE=NAME=PATH"))?;
    let share = self::named(share, shares).ok_or_else(|| refused(NO_SHARE))?;
    let (name, path) = name_and_path(named)?;
    share.volumes.push(SharedVolume { name, path });
    Ok(())
}

pub(super) fn guests(text: &str, shares: &mut [Share]) -> Result<(), Failure> {
    let refused = |why| Failure::ConfigValue { what: "--guests", value: text.into(), why };
    let (name, what) =
        text.split_once('=').ok_or_else(|| refused("write SHARE=read or SHARE=write"))?;
    let share = named(name, shares).ok_or_else(|| refused(NO_SHARE))?;
    share.guests = Some(match what {
        "read" => Guests::Read,
        "write" => Guests::Write,
        _ => return Err(refused("guests may read or write")),
    });
    Ok(())
}

/// Refuses options that say two things of one share, or of the server.
pub(super) fn once_for_each_share(options: &Serve) -> Result<(), Failure> {
    for (what, texts) in [
        ("--guests", &options.guests),
        ("--residency", &options.residency),
        ("--flash-budget", &options.flash_budgets),
        ("--flash-region-budget", &options.flash_region_budgets),
        ("--flash-tier", &options.flash_tiers),
    ] {
        each_once(what, texts)?;
    }
    Ok(())
}

fn each_once(what: &'static str, texts: &[String]) -> Result<(), Failure> {
    let share = |text: &str| text.split_once('=').map(|(name, _)| name.to_ascii_lowercase());
    for (at, text) in texts.iter().enumerate() {
        if texts[..at].iter().any(|before| share(before) == share(text)) {
            let why = "it was given before: give it once";
            return Err(Failure::ConfigValue { what, value: text.clone(), why });
        }
    }
    Ok(())
}

pub(super) fn residency(text: &str, shares: &mut [Share]) -> Result<(), Failure> {
    let refused = |why| Failure::ConfigValue { what: "--residency", value: text.into(), why };
    let why = "write SHARE=lazy or SHARE=eager";
    let (name, what) = text.split_once('=').ok_or_else(|| refused(why))?;
    let share = named(name, shares).ok_or_else(|| refused(NO_SHARE))?;
    share.residency = Some(match what {
        "lazy" => Residency::Lazy,
        "eager" => Residency::Eager,
        _ => return Err(refused(why)),
    });
    Ok(())
}

pub(super) fn flash_budget(
    text: &str,
    server: &mut Option<u64>,
    shares: &mut [Share],
) -> Result<(), Failure> {
    let refused = |why| Failure::ConfigValue { what: "--flash-budget", value: text.into(), why };
    let (name, number) = match text.split_once('=') {
        Some((name, number)) => (Some(name), number),
        None => (None, text),
    };
    let bytes = budget(number).map_err(refused)?;
    match name {
        None => *server = Some(bytes),
        Some(name) => {
            named(name, shares).ok_or_else(|| refused(NO_SHARE))?.flash_budget = Some(bytes);
        }
    }
    Ok(())
}

pub(super) fn flash_region_budget(text: &str, shares: &mut [Share]) -> Result<(), Failure> {
    let refused =
        |why| Failure::ConfigValue { what: "--flash-region-budget", value: text.into(), why };
    let (name, number) = text.split_once('=').ok_or_else(|| refused("write SHARE=SIZE"))?;
    let bytes = budget(number).map_err(refused)?;
    named(name, shares).ok_or_else(|| refused(NO_SHARE))?.flash_region_budget = Some(bytes);
    Ok(())
}

pub(super) fn flash_tier(text: &str, shares: &mut [Share]) -> Result<(), Failure> {
    let refused = |why| Failure::ConfigValue { what: "--flash-tier", value: text.into(), why };
    let (name, wanted) = text.split_once('=').ok_or_else(|| refused(TIER))?;
    let tier = tier(wanted).map_err(refused)?;
    named(name, shares).ok_or_else(|| refused(NO_SHARE))?.flash_tier = Some(tier);
    Ok(())
}

/// A tier in the config file.
pub(super) fn some_tier<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<(u64, PathBuf)>, D::Error> {
    let text = String::deserialize(source)?;
    tier(&text).map(Some).map_err(serde::de::Error::custom)
}

fn tier(text: &str) -> Result<(u64, PathBuf), &'static str> {
    let (number, directory) = text.split_once(':').ok_or(TIER)?;
    match size(number) {
        Ok(_) if directory.is_empty() => Err("the directory must be there"),
        Ok(bytes) if (flash::TIER_MIN..=flash::TIER_MAX).contains(&bytes) => {
            Ok((bytes, directory.into()))
        }
        Ok(_) => Err("a tier has 1M to 4T"),
        Err(_) => Err(TIER),
    }
}

/// A budget in the config file.
pub(super) fn some_size<'de, D: Deserializer<'de>>(source: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(source)?;
    budget(&text).map(Some).map_err(serde::de::Error::custom)
}

fn budget(text: &str) -> Result<u64, &'static str> {
    match size(text) {
        Ok(bytes) if bytes >= flash::BUDGET_MIN => Ok(bytes),
        Ok(_) => Err("a budget has 1M at least"),
        Err(_) => Err("write a size, as in 4G"),
    }
}

fn named<'a>(name: &str, shares: &'a mut [Share]) -> Option<&'a mut Share> {
    shares.iter_mut().find(|share| share.name.eq_ignore_ascii_case(name))
}

pub(super) fn user(text: &str) -> Result<User, Failure> {
    // The argument holds a password: error messages must not repeat it.
    let refused = |why| Failure::ConfigValue { what: "--user", value: "...".into(), why };
    let (name, password) = text.split_once(':').ok_or_else(|| refused("write NAME:PASSWORD"))?;
    if name.is_empty() {
        return Err(refused("the name is empty"));
    }
    Ok(User { name: name.into(), password: password.into() })
}

pub(super) fn announcement(text: &str) -> Result<Announced, Failure> {
    let why = "write ADDRESS, ADDRESS,rss or ADDRESS,rss,rdma";
    text.parse().map_err(|_| Failure::ConfigValue { what: "announce", value: text.into(), why })
}

const TIER: &str = "write SIZE:DIRECTORY, as in 64G:/nvme/cache";
const NO_SHARE: &str = "there is no share of this name";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_says_two_things_of_one_share_is_refused() {
        let check = |texts: [&str; 2]| each_once("--flash-budget", &texts.map(str::to_owned));
        for texts in [["data=1G", "DATA=2G"], ["1G", "2G"]] {
            let refused = check(texts).unwrap_err().to_string();
            assert!(refused.contains("it was given before") && refused.contains("2G"), "{refused}");
        }
        check(["1G", "data=2G"]).unwrap();
        check(["data=1G", "more=1G"]).unwrap();
    }
}
