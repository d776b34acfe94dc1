//! The ways of a shuffle: files, or a region of a striped store.

use std::fs;
use std::path::{Path, PathBuf};

use basics::Environment;
use store::data::ShufflePlan;
use store::meta::record::Class;
use store::{Allocation, Region, Rights, Store, StoreKey, StoreOptions};

use super::super::store::{Daemon, start};
use super::files::read;
use crate::failure::Failure;
use crate::store::StoreFailure;

/// Which way, and where.
#[derive(Clone, Debug)]
pub(super) enum Arm {
    /// A file for each run: what engines do that shuffle on local disks.
    Files,
    /// A store of daemons with their pieces in this directory.
    Store {
        /// Made for the arm, and removed with it.
        directory: PathBuf,
    },
}

/// A shuffle under way.
pub(super) enum Shuffle {
    Files {
        directory: PathBuf,
        mappers: usize,
    },
    Store {
        /// Before the daemons end.
        open: Option<Box<Open>>,
        daemons: Vec<Daemon>,
        class: Class,
        directory: PathBuf,
    },
}

/// What is open of a store. Each worker has a client, as a process of another machine would.
pub(super) struct Open {
    stores: Vec<Store>,
    shuffle: Option<(ShufflePlan, Vec<Region>)>,
}

impl Shuffle {
    pub(super) fn start(arm: &Arm, scratch: &Path, daemons: u32) -> Result<Self, Failure> {
        match arm {
            Arm::Files => Ok(Self::Files { directory: scratch.join("runs"), mappers: 0 }),
            Arm::Store { directory } => {
                fs::create_dir_all(directory)
                    .map_err(Failure::local("cannot make a directory", directory))?;
                let place = directory.join("meta").to_string_lossy().into_owned();
                let running: Result<Vec<Daemon>, Failure> = (0..daemons)
                    .map(|at| start(&directory.join(at.to_string()), &format!("d{at}"), &place))
                    .collect();
                let running = running?;
                let store = client(&place)?;
                let servers = store.servers().map_err(StoreFailure::from)?;
                let class = servers.values().next().map_or(Class::Volatile, |one| one.class);
                let open = Some(Box::new(Open { stores: vec![store], shuffle: None }));
                let directory = directory.clone();
                Ok(Self::Store { open, daemons: running, class, directory })
            }
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Files { .. } => "files (control arm)".to_owned(),
            Self::Store { daemons, class, .. } => {
                format!("store, {} daemons, class {class}", daemons.len())
            }
        }
    }

    /// The place of each run, of `sizes[mapper][reducer]` bytes.
    pub(super) fn plan(&mut self, sizes: &[Vec<u64>]) -> Result<(), Failure> {
        match self {
            Self::Files { directory, mappers } => {
                *mappers = sizes.len();
                fs::create_dir_all(&*directory)
                    .map_err(Failure::local("cannot make a directory", &*directory))
            }
            Self::Store { open, class, directory, .. } => {
                let open = open.as_mut().expect("it is open until its end");
                let plan = ShufflePlan::new(sizes).expect("sizes of runs in memory");
                let wanted = Allocation::new(plan.region_len().max(1), *class);
                open.stores[0].create(REGION, &wanted).map_err(StoreFailure::from)?;
                let place = directory.join("meta").to_string_lossy().into_owned();
                while open.stores.len() < sizes.len() {
                    open.stores.push(client(&place)?);
                }
                let both = Rights::READ | Rights::WRITE;
                let mapped = open.stores.iter().map(|store| store.map(REGION, both));
                let mapped: Result<Vec<_>, _> = mapped.collect();
                open.shuffle = Some((plan, mapped.map_err(StoreFailure::from)?));
                Ok(())
            }
        }
    }

    /// Brings the runs of a mapper where their reducers take them.
    pub(super) fn put(&self, mapper: usize, runs: &[Vec<u8>]) -> Result<(), Failure> {
        match self {
            Self::Files { directory, .. } => {
                for (reducer, run) in runs.iter().enumerate() {
                    let path = directory.join(format!("{mapper}-{reducer}"));
                    fs::write(&path, run).map_err(Failure::local("cannot write", &path))?;
                }
                Ok(())
            }
            Self::Store { open, .. } => {
                let (plan, regions) = planned(open.as_deref());
                let runs: Vec<(usize, &[u8])> =
                    runs.iter().enumerate().map(|(reducer, run)| (reducer, &run[..])).collect();
                let written = plan.write(&regions[mapper], mapper, &runs);
                Ok(written.map_err(StoreFailure::from)?)
            }
        }
    }

    /// All that is a reducer's.
    pub(super) fn take(&self, reducer: usize) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Files { directory, mappers } => {
                let runs = (0..*mappers)
                    .map(|mapper| read(&directory.join(format!("{mapper}-{reducer}"))));
                Ok(runs.collect::<Result<Vec<_>, _>>()?.concat())
            }
            Self::Store { open, .. } => {
                let (plan, regions) = planned(open.as_deref());
                let taken = plan.read(&regions[reducer], reducer);
                Ok(taken.map_err(StoreFailure::from)?)
            }
        }
    }

    /// Removes what the shuffle left.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        let directory = match self {
            Self::Files { directory, .. } => directory.clone(),
            Self::Store { open, daemons, directory, .. } => {
                *open = None;
                daemons.iter_mut().for_each(Daemon::end);
                directory.clone()
            }
        };
        fs::remove_dir_all(&directory).map_err(Failure::local("cannot remove", &directory))
    }
}

fn planned(open: Option<&Open>) -> (&ShufflePlan, &[Region]) {
    let shuffle = open.and_then(|open| open.shuffle.as_ref());
    let (plan, regions) = shuffle.expect("a shuffle is planned before it is carried out");
    (plan, regions)
}

fn client(place: &str) -> Result<Store, Failure> {
    let meta = store::meta::open(place).map_err(StoreFailure::from)?;
    let key = StoreKey::read_or_make(&Path::new(place).join("key"), &Environment::host());
    let key = key.map_err(StoreFailure::from)?;
    Ok(Store::open(StoreOptions::new(meta, Some(key))).map_err(StoreFailure::from)?)
}

const REGION: &str = "shuffle";
