//! Sizes as people write them.

/// Parses "4096", "4K", "1M" or "2G".
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches(['K', 'M', 'G']);
    let shift = match &upper[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("at most one of K, M, G behind the number".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "write a number, as in 4K".to_owned())?;
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
        size("K").unwrap_err();
        size("4KK").unwrap_err();
    }
}
