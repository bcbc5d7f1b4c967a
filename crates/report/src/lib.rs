//! Bursar: report.
