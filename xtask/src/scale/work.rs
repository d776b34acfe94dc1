//! The kinds of work that are played.

/// What each client does, over and over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    /// Operations of a client that are on their way.
    pub(super) depth: u32,
    /// Bytes from the client, and back.
    pub(super) request: u64,
    pub(super) response: u64,
    /// Servers that each operation goes to at once; it ends with the last answer.
    pub(super) fan: u32,
    /// Of a hundred operations so many find their pages on flash.
    pub(super) misses: u32,
    /// Of a hundred operations so many go to one server of ten.
    pub(super) hot: u32,
    /// Asks the metadata first, which are at one place for all.
    pub(super) maps: bool,
}

const PLAIN: Work = Work {
    name: "",
    depth: 32,
    request: 64,
    response: 4096,
    fan: 1,
    misses: 0,
    hot: 0,
    maps: false,
};

/// All of them.
pub(super) const WORK: [Work; 8] = [
    Work { name: "read 4 KiB, resident", ..PLAIN },
    Work { name: "read 4 KiB, a tenth from flash", misses: 10, ..PLAIN },
    Work { name: "read 4 KiB, all from flash", misses: 100, ..PLAIN },
    Work { name: "write 4 KiB and commit", request: 4160, response: 64, ..PLAIN },
    Work {
        name: "write 4 KiB and commit, two copies",
        request: 4160,
        response: 64,
        fan: 2,
        ..PLAIN
    },
    Work { name: "read 1 MiB over 16 stripes", depth: 4, response: 65_536, fan: 16, ..PLAIN },
    Work { name: "read 4 KiB, half of it at a tenth of the servers", hot: 50, ..PLAIN },
    Work {
        name: "map a region of 10 pieces",
        depth: 1,
        response: 256,
        fan: 10,
        maps: true,
        ..PLAIN
    },
];
