//! Placement: which servers get the copies of which pieces.
//!
//! Each piece in turn gets the servers with the most room left, no server twice, and among those with about as much
//! room the ones that have the fewest pieces of the region: so a region is spread over as many servers as it has pieces.

use thiserror::Error;

/// A server that may get pieces.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Free bytes.
    pub free: u64,
}

/// The servers of each piece, in the order of the pieces. `lens` are the lengths of the pieces.
///
/// # Errors
/// Too few servers, or too little room.
pub fn place(
    candidates: &[Candidate],
    lens: &[u64],
    copies: usize,
) -> Result<Vec<Vec<String>>, PlaceError> {
    if candidates.len() < copies {
        return Err(PlaceError::Servers { wanted: copies, found: candidates.len() });
    }
    let mut left: Vec<(u64, usize)> = candidates.iter().map(|one| (one.free, 0)).collect();
    let mut placed = Vec::with_capacity(lens.len());
    for len in lens {
        let mut order: Vec<usize> = (0..left.len()).filter(|at| left[*at].0 >= *len).collect();
        // Fewest pieces first, then the most room, then the name.
        order.sort_by_key(|at| (left[*at].1, u64::MAX - left[*at].0, &candidates[*at].name));
        if order.len() < copies {
            return Err(PlaceError::Room { len: *len, wanted: copies, found: order.len() });
        }
        order.truncate(copies);
        for at in &order {
            left[*at].0 -= len;
            left[*at].1 += 1;
        }
        placed.push(order.into_iter().map(|at| candidates[at].name.clone()).collect());
    }
    Ok(placed)
}

/// Why a region has no place.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PlaceError {
    /// Too few servers of the class.
    #[error(
        "{wanted} copies need as many servers of the class, and {found} are alive: see landfast store servers"
    )]
    Servers {
        /// Copies wanted.
        wanted: usize,
        /// Servers.
        found: usize,
    },
    /// Too little room.
    #[error(
        "a piece of {len} bytes fits on {found} servers, and {wanted} are needed: take a smaller size or a greater width"
    )]
    Room {
        /// Length of the piece.
        len: u64,
        /// Copies wanted.
        wanted: usize,
        /// Servers with room.
        found: usize,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn servers(free: &[u64]) -> Vec<Candidate> {
        let named = free.iter().enumerate();
        named.map(|(at, free)| Candidate { name: format!("s{at}"), free: *free }).collect()
    }

    #[test]
    fn pieces_are_spread_before_a_server_gets_a_second_one() {
        let placed = place(&servers(&[100, 1000, 1000]), &[50, 50, 50], 1).unwrap();
        assert_eq!(placed, [["s1"], ["s2"], ["s0"]]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let refused = place(&servers(&[100]), &[10], 2).unwrap_err();
        assert_eq!(refused, PlaceError::Servers { wanted: 2, found: 1 });
        let refused = place(&servers(&[100, 5]), &[10], 2).unwrap_err();
        assert_eq!(refused, PlaceError::Room { len: 10, wanted: 2, found: 1 });
    }

    proptest! {
        #[test]
        fn no_piece_is_twice_on_a_server_and_no_server_is_overfull(
            free in prop::collection::vec(0_u64..1000, 1..12),
            lens in prop::collection::vec(1_u64..200, 1..12),
            copies in 1_usize..4,
        ) {
            let candidates = servers(&free);
            let Ok(placed) = place(&candidates, &lens, copies) else { return Ok(()) };
            for (at, candidate) in candidates.iter().enumerate() {
                let mut used = 0;
                for (names, len) in placed.iter().zip(&lens) {
                    let times = names.iter().filter(|name| **name == candidate.name).count();
                    prop_assert!(times <= 1);
                    used += len * u64::try_from(times).unwrap();
                }
                prop_assert!(used <= free[at]);
            }
            prop_assert!(placed.iter().all(|names| names.len() == copies));
        }
    }
}
