//! Amounts of CPU and memory as Kubernetes writes them.

use std::fmt;

/// `50m`, `0.5`, `64Mi`, `1e3`: the text, checked, with its value for comparisons.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    text: String,
    value: f64,
}

const SUFFIXES: [(&str, f64); 15] = [
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
];
/// Longer ones are no amounts of anything.
const MAX_BYTES: usize = 32;

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, String> {
        let fault = || {
            let shown: String = text.chars().take(MAX_BYTES).collect();
            format!("{shown:?} is not a quantity such as 50m, 0.5, 64Mi or 1Gi")
        };
        if text.len() > MAX_BYTES {
            return Err(fault());
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| fault())?;
        let factor = match suffix {
            "" => 1.0,
            _ => match SUFFIXES.iter().find(|(known, _)| *known == suffix) {
                Some((_, factor)) => *factor,
                None => exponent(suffix).ok_or_else(fault)?,
            },
        };
        Ok(Self {
            text: text.to_owned(),
            value: number * factor,
        })
    }

    pub fn exceeds(&self, other: &Self) -> bool {
        self.value > other.value
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// `e3` or `E-3`.
fn exponent(suffix: &str) -> Option<f64> {
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let exponent: i32 = digits.parse().ok()?;
    (-18..=18).contains(&exponent).then(|| 10f64.powi(exponent))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        let check = |text: &str, value: Option<f64>| {
            let parsed = Quantity::parse(text).ok().map(|quantity| quantity.value);
            match (parsed, value) {
                (Some(parsed), Some(value)) => {
                    assert!((parsed - value).abs() <= value * 1e-12, "{text}: {parsed}");
                }
                (parsed, value) => assert_eq!(parsed, value, "{text}"),
            }
        };
        check("50m", Some(0.05));
        check("0.5", Some(0.5));
        check("2", Some(2.0));
        check("64Mi", Some(67_108_864.0));
        check("1G", Some(1e9));
        check("1e3", Some(1000.0));
        check("1E", Some(1e18));
        check("1E2", Some(100.0));
        for text in [
            "", ".", "m", "10x", "1 Gi", "1GiB", "-1", "+1", "inf", "NaN", "1.2.3", "1e99", "0x10",
            "64MI", "１",
        ] {
            check(text, None);
        }
    }
}
