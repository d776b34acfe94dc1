//! SMB 2 and 3 without sockets.
