//! The private data of kernels in an SMB Direct connection request, and the answer they expect.
//!
//! ```text
//!  0            4            8
//!  +------------+------------+
//!  | IRD        | ORD        |   big-endian since Linux 7, in the host's order before
//!  +------------+------------+
//! ```
//!
//! The two words repeat what MPA revision 2 negotiates anyway; nothing depends on them. A kernel
//! that sends them in its own byte order is answered with its own words, as its own server would; a
//! newer kernel, and every other peer, gets no private data.
//!
//! Spec: none. Captured from cifs.ko 6.12 (`20000000 01000000`) and 7.2 (`00000020 00000001`).

/// The private data to answer with.
pub(super) fn answer_to(private_data: &[u8]) -> &[u8] {
    let Some((words, _)) = private_data.split_first_chunk::<LEN>() else { return &[] };
    let [a, b, c, d, e, f, g, h] = *words;
    let [ird, ord] = [[a, b, c, d], [e, f, g, h]];
    let is_modern = is_limit(u32::from_be_bytes(ird)) && is_limit(u32::from_be_bytes(ord));
    let is_legacy = is_limit(u32::from_le_bytes(ird)) && is_limit(u32::from_le_bytes(ord));
    if is_legacy && !is_modern { words } else { &[] }
}

// RFC 6581 §9: the greatest value in the 14 bits of MPA revision 2.
fn is_limit(word: u32) -> bool {
    word <= 0x3fff
}

const LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_kernel_gets_its_words_back() {
        let old = [0x20, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(answer_to(&old), old);
        assert_eq!(answer_to(&[0, 0, 0, 0x20, 0, 0, 0, 1]), [0; 0]);
        assert_eq!(answer_to(&[0x20, 0, 0, 0]), [0; 0]);
        assert_eq!(answer_to(&[0xff; 12]), [0; 0]);
        assert_eq!(answer_to(&[]), [0; 0]);
    }

    #[test]
    fn adapters_that_append_stray_bytes_change_nothing() {
        // irdma hands over four bytes more than the peer sent.
        let stray = [0x20, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9];
        assert_eq!(answer_to(&stray), &stray[..8]);
    }
}
