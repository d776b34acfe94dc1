//! Striped stores: regions of memory of many servers.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::c_char;
use std::path::Path;
use std::time::Duration;

use store::{Rights, Store, StoreKey, StoreOptions, Token};

use crate::at_fork;
use crate::border::{self, Place, guarded};
use crate::fault::Fault;
use crate::handles::{STORE_REGIONS, STORES, StoreHandle, StoreRegionHandle};
use crate::status::Status;
use crate::store_types::{LANDFAST_STORE_TOKEN_SIZE, StoreAllocation};
use crate::stored::{StoreClient, StoreMapped};
use crate::types::{LANDFAST_READ, LANDFAST_WRITE};

/// Opens a striped store (docs/store.md).
///
/// `place` is where its metadata is: a directory of this machine, or `etcd://HOST:PORT[,HOST:PORT...]/NAME`. `key_file` is the
/// file of the store's key; null takes the file `key` of the metadata's directory, and an empty text no key at all: then regions
/// are mapped by tokens, and none is made or freed.
///
/// The store has threads of its own. A process that forks must open it after that.
///
/// # Safety
/// `place` and `key_file` are strings that end with a zero (the latter may be null); `store` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_open(
    place: *const c_char,
    key_file: *const c_char,
    store: *mut StoreHandle,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::new("store", store) }?;
        // SAFETY: by the caller.
        let place = unsafe { border::text("place", place) }?;
        // SAFETY: by the caller.
        let key_file = unsafe { border::optional_text("key_file", key_file) }?;
        let is_directory = !place.contains("://");
        if is_directory && !Path::new(place).join("records").is_dir() {
            return Err(Fault::NoStore { place: place.to_owned() });
        }
        let key = match key_file {
            Some("") => None,
            Some(path) => Some(Path::new(path).to_path_buf()),
            None if is_directory => Some(Path::new(place).join("key")),
            None => return Err(Fault::NoKey { place: place.to_owned() }),
        };
        let key = key.map(|path| StoreKey::read(&path)).transpose().map_err(Fault::Key)?;
        let failed = Fault::store("open", place);
        let meta = store::meta::open(place).map_err(|error| failed(error.into()))?;
        let opened =
            Store::open(StoreOptions::new(meta, key)).map_err(Fault::store("open", place))?;
        at_fork::watch();
        let id = STORES.add(StoreClient { store: opened })?;
        out.set(StoreHandle { id });
        Ok(())
    })
}

/// Ends a client of a store. Its mapped regions go on until they are unmapped.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_store_close(store: StoreHandle) -> Status {
    guarded(|| STORES.take(store.id).map(drop))
}

/// Sets each member to its default.
///
/// # Safety
/// `allocation` has room for the structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_allocation_init(
    allocation: *mut StoreAllocation,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        unsafe { Place::new("allocation", allocation) }?.set(StoreAllocation::default());
        Ok(())
    })
}

/// Makes a region of `size` zeros. `allocation` may be null for the defaults.
///
/// # Safety
/// `name` is a string that ends with a zero; `allocation` is null or was filled by `landfast_store_allocation_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_allocate(
    store: StoreHandle,
    name: *const c_char,
    size: u64,
    allocation: *const StoreAllocation,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let name = unsafe { border::text("name", name) }?;
        // SAFETY: by the caller.
        let allocation = unsafe { border::structure("allocation", allocation) }?;
        let wanted = allocation.copied().unwrap_or_default().wanted(size)?;
        let client = STORES.find(store.id)?;
        client.store.create(name, &wanted).map(drop).map_err(Fault::store("make", name))
    })
}

/// Removes a region. Mappings of it end.
///
/// # Safety
/// `name` is a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_free(store: StoreHandle, name: *const c_char) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let name = unsafe { border::text("name", name) }?;
        let client = STORES.find(store.id)?;
        client.store.free(name).map_err(Fault::store("free", name))
    })
}

/// Maps a region to read (`LANDFAST_READ`) or also to write (`LANDFAST_READ | LANDFAST_WRITE`). After this no metadata is asked
/// by its reads and writes, until a server is lost. `token` takes the place of the store's key, and its rights that of
/// `flags`; null: the key.
///
/// # Safety
/// `name` and `token` are strings that end with a zero (the latter may be null); `region` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_map(
    store: StoreHandle,
    name: *const c_char,
    flags: u32,
    token: *const c_char,
    region: *mut StoreRegionHandle,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::new("region", region) }?;
        // SAFETY: by the caller.
        let name = unsafe { border::text("name", name) }?;
        // SAFETY: by the caller.
        let token = unsafe { border::optional_text("token", token) }?;
        let client = STORES.find(store.id)?;
        let mapped = match token {
            Some(text) => {
                let why = "a token begins with lfst1- and has 144 hex digits";
                let bad = Fault::Value { what: "token", value: 0, why };
                client.store.map_by_token(name, text.parse::<Token>().map_err(|_| bad)?)
            }
            None => client.store.map(name, rights(flags)?),
        };
        let mapped = mapped.map_err(Fault::store("map", name))?;
        let id = STORE_REGIONS.add(StoreMapped::new(mapped))?;
        out.set(StoreRegionHandle { id });
        Ok(())
    })
}

/// Writes a token into `text`: with it a program without the key maps the region for `seconds` from now, with the rights of
/// `flags` as of `landfast_store_map`. `text` has room for `LANDFAST_STORE_TOKEN_SIZE` characters.
///
/// # Safety
/// `name` is a string that ends with a zero; `text` has room for as many characters as `room` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_token(
    store: StoreHandle,
    name: *const c_char,
    flags: u32,
    seconds: u64,
    text: *mut c_char,
    room: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let name = unsafe { border::text("name", name) }?;
        // SAFETY: by the caller.
        let out = unsafe { border::bytes_mut("text", text.cast(), room) }?;
        let client = STORES.find(store.id)?;
        let lifetime = Duration::from_secs(seconds);
        let token = client.store.token(name, rights(flags)?, lifetime);
        let token = token.map_err(Fault::store("make a token for", name))?.expose();
        let bytes = token.as_bytes();
        let value = u64::try_from(room).unwrap_or(u64::MAX);
        let is_room = value >= u64::from(LANDFAST_STORE_TOKEN_SIZE);
        let (Some(place), true) = (out.get_mut(..bytes.len()), is_room) else {
            let why = "a token needs LANDFAST_STORE_TOKEN_SIZE characters";
            return Err(Fault::Value { what: "room", value, why });
        };
        place.copy_from_slice(bytes);
        out[bytes.len()] = 0;
        Ok(())
    })
}

/// Fills the copies of a region that are missing, and says how many are still missing: too few servers, or too little room.
/// Daemons do it by themselves some seconds after a loss.
///
/// # Safety
/// `name` is a string that ends with a zero; `missing` has room for a number, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_store_rebuild(
    store: StoreHandle,
    name: *const c_char,
    missing: *mut u32,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let out = unsafe { Place::optional("missing", missing) }?;
        // SAFETY: by the caller.
        let name = unsafe { border::text("name", name) }?;
        let client = STORES.find(store.id)?;
        let done = client.store.rebuild(name).map_err(Fault::store("rebuild", name))?;
        if let Some(out) = out {
            out.set(done.missing);
        }
        Ok(())
    })
}

fn rights(flags: u32) -> Result<Rights, Fault> {
    match flags {
        LANDFAST_READ => Ok(Rights::READ),
        flags if flags == LANDFAST_READ | LANDFAST_WRITE => Ok(Rights::READ | Rights::WRITE),
        _ => {
            let why = "choose LANDFAST_READ, or LANDFAST_READ | LANDFAST_WRITE";
            Err(Fault::Value { what: "flags", value: flags.into(), why })
        }
    }
}
