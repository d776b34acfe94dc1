//! MPA, DDP and RDMAP without sockets.
