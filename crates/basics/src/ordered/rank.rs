//! What orders locks.

/// The place of a lock in the order of a program. A type of its own for each, which [`ranks!`](crate::ranks) makes.
pub trait Rank: 'static {
    /// Below [`RANKS`]. A thread takes locks in rising order; from [`LEAVES`] on, one at a time.
    const LEVEL: u32;
    /// What the lock guards, for the report.
    const NAME: &'static str;
}

/// Ranks of one program: a thread remembers those that it holds in a word.
pub const RANKS: u32 = 64;
/// The first rank of a leaf.
pub const LEAVES: u32 = 32;

/// Makes the ranks of a program, in rising order: a type for each, and a list of all of them.
///
/// ```
/// basics::ranks! {
///     /// All ranks of the program.
///     pub const ALL;
///     /// The table of the accounts.
///     pub Accounts = 0, "the accounts";
///     /// One account.
///     pub Account = 1, "an account";
///     /// The counters, under which nothing else is locked.
///     pub Counters = basics::ordered::LEAVES, "the counters";
/// }
/// assert_eq!(ALL[1], (1, "an account"));
/// ```
#[macro_export]
macro_rules! ranks {
    (
        $(#[$about_all:meta])* $seen_all:vis const $all:ident;
        $($(#[$about:meta])* $seen:vis $rank:ident = $level:expr, $name:literal;)+
    ) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug)]
            $seen enum $rank {}

            impl $crate::ordered::Rank for $rank {
                const LEVEL: u32 = $level;
                const NAME: &'static str = $name;
            }
        )+

        $(#[$about_all])*
        $seen_all const $all: &[(u32, &str)] = &[$(($level, $name)),+];

        // A rank that does not fit, or stands in the wrong place, does not compile.
        const _: () = {
            let mut at = 0;
            while at < $all.len() {
                assert!($all[at].0 < $crate::ordered::RANKS, "a rank is too high");
                assert!(at == 0 || $all[at - 1].0 < $all[at].0, "ranks stand in rising order");
                at += 1;
            }
        };
    };
}
