//! The report as one self-contained page.

use super::Report;

pub fn html(report: &Report) -> String {
    format!("<!doctype html><title>{}</title>", report.trace.len())
}
