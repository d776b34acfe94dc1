//! Sizes as people write them.

/// Parses "4096", "4K", "1M", "2G" or "3T".
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &upper[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("at most one of K, M, G, T behind the number".into()),
    };
    let number: u64 =
        digits.parse().map_err(|_| "write a number, and K, M, G or T, as in 4K".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_suffixes() {
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("1m"), Ok(1 << 20));
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("3T"), Ok(3 << 40));
        size("K").unwrap_err();
        size("4KK").unwrap_err();
    }
}
