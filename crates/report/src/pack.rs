//! Numbers and names as short text, for the data that a page carries. `assets/data.js` unpacks them.
//!
//! A number is a run of base-64 digits, least significant first, five bits each; the sixth bit says
//! that another digit follows. The digits need no escape in JSON or in markup.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A sequence of numbers. The reader must know what follows what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed(String);

impl Packed {
    /// Appends a number.
    pub(crate) fn put(&mut self, mut number: u64) {
        loop {
            let digit = (number & 31) as usize;
            number >>= 5;
            let more = usize::from(number > 0) << 5;
            self.0.push(char::from(DIGITS[digit | more]));
            if more == 0 {
                return;
            }
        }
    }

    /// Appends a number that can be negative: zigzag, so that small ones stay short.
    pub(crate) fn put_signed(&mut self, number: i64) {
        self.put(((number << 1) ^ (number >> 63)) as u64);
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// A sequence of readings, each packed as its difference from the one before.
pub(crate) fn differences(readings: impl IntoIterator<Item = i64>) -> String {
    let mut packed = Packed::default();
    let mut before = 0;
    for reading in readings {
        packed.put_signed(reading - before);
        before = reading;
    }
    packed.into_text()
}

/// Sorted names, each as one digit for how much it shares with the one before (in UTF-16 units, since
/// that is how scripts count) and the rest.
pub(crate) fn front_coded<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut before = "";
    let mut coded = Vec::new();
    for name in names {
        let (mut bytes, mut units) = (0, 0);
        for (here, there) in name.chars().zip(before.chars()) {
            if here != there || units + here.len_utf16() >= DIGITS.len() {
                break;
            }
            bytes += here.len_utf8();
            units += here.len_utf16();
        }
        coded.push(format!("{}{}", char::from(DIGITS[units]), &name[bytes..]));
        before = name;
    }
    coded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(numbers: &[u64]) -> String {
        let mut packed = Packed::default();
        numbers.iter().for_each(|&number| packed.put(number));
        packed.into_text()
    }

    #[test]
    fn numbers_are_runs_of_digits() {
        assert_eq!(digits(&[0, 31, 32, 1_000_000]), "AfgBgywe");
        assert_eq!(digits(&[u64::MAX]).len(), 13);
        assert_eq!(differences([5, 3, 3, 10]), "KDAO");
        let mut packed = Packed::default();
        packed.put_signed(i64::MIN);
        assert_eq!(packed.into_text(), digits(&[u64::MAX]));
    }

    #[test]
    fn names_share_their_beginnings() {
        let coded = front_coded(["run-1", "run-12", "ö😀a", "ö😀b", ""]);
        assert_eq!(coded, ["Arun-1", "F2", "Aö😀a", "Db", "A"]);
        let long = "x".repeat(100);
        let coded = front_coded([long.as_str(), long.as_str()]);
        assert_eq!(coded[1], format!("_{}", "x".repeat(37)));
    }
}
