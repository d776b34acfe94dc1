//! SMB Direct without sockets.
