//! Bytes that others made: what the layout says, typed by hand.

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmem::{Medium, OpenOptions, anonymous_with};
    use volume::{Format, LayoutVersion, create};

    fn medium(len: u64) -> Arc<dyn Medium> {
        anonymous_with(len, OpenOptions { emulate_persistence: true }).unwrap()
    }

    fn bytes_at(medium: &Arc<dyn Medium>, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        medium.read(at, &mut bytes).unwrap();
        bytes
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// 64 MiB less the free page, sectors of 4096, 256 lanes: 16,360 blocks = (67,104,768 - 2 pages - 4 pages of flog
    /// - 1 page) / 4100, and 16,104 sectors, whose map has 16 pages.
    const INFO_64_MIB: &str = "
        42 54 54 5f 41 52 45 4e 41 5f 49 4e 46 4f 00 00
        00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 01 00 01 00
        00 10 00 00 e8 3e 00 00 00 10 00 00 e8 3f 00 00
        00 01 00 00 00 10 00 00
        00 00 00 00 00 00 00 00
        00 10 00 00 00 00 00 00
        00 a0 fe 03 00 00 00 00
        00 a0 ff 03 00 00 00 00
        00 e0 ff 03 00 00 00 00";

    #[test]
    fn the_info_block_of_64_mib_is_the_one_of_the_specification() {
        let medium = medium(64 << 20);
        let uuid = std::array::from_fn(|at| u8::try_from(at).unwrap());
        create(&medium, Format::linux(4096, uuid)).unwrap();
        let block = bytes_at(&medium, 4096, 4096);
        assert_eq!(block[..120], hex(INFO_64_MIB)[..]);
        assert!(block[120..4088].iter().all(|byte| *byte == 0));
        assert_eq!(bytes_at(&medium, 4096 + 0x03ff_e000, 4096), block, "the copy");
        assert_eq!(bytes_at(&medium, 0, 4096), vec![0; 4096], "the free page");
    }

    #[test]
    fn the_flog_of_a_new_volume_names_each_lane_and_its_free_block() {
        let medium = medium(64 << 20);
        create(&medium, Format::linux(4096, [7; 16])).unwrap();
        let group = bytes_at(&medium, 4096 + 0x03ff_a000 + 2 * 64, 64);
        // Sector 2, old and new block 16,104 + 2, sequence 1.
        assert_eq!(group[..16], hex("02 00 00 00  ea 3e 00 00  ea 3e 00 00  01 00 00 00")[..]);
        assert_eq!(group[16..], [0; 48]);
    }

    /// The info block that Linux 6.12.117 wrote for 128 MiB with sectors of 4096, and its checksum.
    const INFO_OF_LINUX: &str = "
        42 54 54 5f 41 52 45 4e 41 5f 49 4e 46 4f 00 00
        8c b9 c4 9e 43 19 4e 02 93 f6 92 e6 19 46 78 c4
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        00 00 00 00 01 00 01 00
        00 10 00 00 d8 7e 00 00 00 10 00 00 d8 7f 00 00
        00 01 00 00 00 10 00 00
        00 00 00 00 00 00 00 00
        00 10 00 00 00 00 00 00
        00 a0 fd 07 00 00 00 00
        00 a0 ff 07 00 00 00 00
        00 e0 ff 07 00 00 00 00";
    const CHECKSUM_OF_LINUX: &str = "36 c4 00 60 be 94 07 5b";
    /// Its flog groups of lanes 1 and 255, which had written nothing.
    const LANE_1_OF_LINUX: &str = "01 00 00 00 d9 7e 00 00 d9 7e 00 00 01 00 00 00";
    const LANE_255_OF_LINUX: &str = "ff 00 00 00 d7 7f 00 00 d7 7f 00 00 01 00 00 00";

    #[test]
    fn a_new_volume_has_the_bytes_that_linux_writes() {
        let medium = medium(128 << 20);
        let linux = hex(INFO_OF_LINUX);
        create(&medium, Format::linux(4096, linux[16..32].try_into().unwrap())).unwrap();
        let block = bytes_at(&medium, 4096, 4096);
        assert_eq!(block[..120], linux[..]);
        assert_eq!(block[4088..], hex(CHECKSUM_OF_LINUX)[..]);
        let flog = 4096 + 0x07ff_a000;
        assert_eq!(bytes_at(&medium, flog + 64, 16), hex(LANE_1_OF_LINUX));
        assert_eq!(bytes_at(&medium, flog + 255 * 64, 16), hex(LANE_255_OF_LINUX));
    }

    #[test]
    fn layout_2_0_begins_at_the_first_byte() {
        let medium = medium(64 << 20);
        let format = Format { version: LayoutVersion::V2_0, ..Format::linux(512, [7; 16]) };
        create(&medium, format).unwrap();
        let block = bytes_at(&medium, 0, 64);
        assert_eq!(block[48..64], hex("00 00 00 00 02 00 00 00 00 02 00 00 d0 fa 01 00")[..]);
    }
}
