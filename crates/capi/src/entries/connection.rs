//! Sessions.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::c_char;

use client::{ConnectOptions, SmbUrl, blocking};

use crate::at_fork;
use crate::border::{self, Place, guarded};
use crate::fault::Fault;
use crate::handles::{CLIENTS, ClientHandle, Session};
use crate::status::Status;

/// Connects to a share.
///
/// `url` is `smb://[USER[:PASSWORD]@]HOST[:PORT]/SHARE`; a path behind the share is ignored. `user` and `password` take the
/// place of those in the URL; null leaves them. A user without a password gets that of the environment variable
/// LANDFAST_PASSWORD. Without a user the session is a guest's.
///
/// The session has a thread of its own. A process that forks must connect after that.
///
/// # Safety
/// `url`, `user` and `password` are strings that end with a zero (the latter two may be null); `client` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_connect(
    url: *const c_char,
    user: *const c_char,
    password: *const c_char,
    client: *mut ClientHandle,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("client", client) }?;
        // SAFETY: by the caller.
        let text = unsafe { border::text("url", url) }?;
        // SAFETY: by the caller.
        let user = unsafe { border::optional_text("user", user) }?;
        // SAFETY: by the caller.
        let password = unsafe { border::optional_text("password", password) }?;
        // The text of the address may hold a password, so the fault does not repeat it.
        let parsed = text.parse::<SmbUrl>().map_err(client::ClientError::from);
        let mut address = parsed.map_err(Fault::client("use", "the address"))?;
        if let Some(user) = user {
            user.clone_into(&mut address.user);
        }
        if let Some(password) = password {
            address.password = password.to_owned().into();
        }
        let address = address.with_password_of_environment();
        let options = ConnectOptions::for_user_of(&address);
        let connected = blocking::Client::connect(&address, &options);
        let client = connected.map_err(Fault::client("enter", address.to_string()))?;
        at_fork::watch();
        let id = CLIENTS.add(Session { client, address: address.to_string() })?;
        place.set(ClientHandle { id });
        Ok(())
    })
}

/// Ends a session. Its files and regions go on until they are closed, and the connection with the last of them.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_disconnect(client: ClientHandle) -> Status {
    guarded(|| CLIENTS.take(client.id).map(drop))
}

/// Checks that the server answers.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_echo(client: ClientHandle) -> Status {
    guarded(|| {
        let session = CLIENTS.find(client.id)?;
        session.client.echo().map_err(Fault::client("reach", session.address.as_str()))
    })
}

const _: () = assert!(size_of::<ClientHandle>() == 8);
