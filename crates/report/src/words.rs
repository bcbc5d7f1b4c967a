//! Numbers as people read them, with units.

/// `98.4 %`.
pub(crate) fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// `1,234,567`.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value <= -0.5 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// GPU-hours: whole when there are many, with a decimal when there are few.
pub(crate) fn gpu_hours(value: f64) -> String {
    if value.abs() < 99.95 && value != 0.0 {
        format!("{value:.1} h")
    } else {
        format!("{} h", grouped(value))
    }
}

/// A span of time in one unit.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..=119 => format!("{whole} s"),
        120..=7_199 => format!("{:.0} min", seconds / 60.0),
        7_200..=172_799 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0.4), "0");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-1_000.0), "-1,000");
        assert_eq!(gpu_hours(0.0), "0 h");
        assert_eq!(gpu_hours(12.34), "12.3 h");
        assert_eq!(gpu_hours(1_234.5), "1,234 h");
    }

    #[test]
    fn spans_have_one_unit() {
        assert_eq!(span(30.0), "30 s");
        assert_eq!(span(600.0), "10 min");
        assert_eq!(span(9_000.0), "2.5 h");
        assert_eq!(span(30.0 * 86_400.0), "30.0 d");
    }
}
