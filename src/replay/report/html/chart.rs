//! Charts as SVG, by hand: bars, stacked bars and histograms need no library.

use std::fmt::Write;

use super::page::escape;

const WIDTH: f64 = 560.0;
const LABEL_WIDTH: f64 = 170.0;
const ROW_HEIGHT: f64 = 24.0;
const TEXT_WIDTH: f64 = 100.0;
const COLOURS: usize = 8;
/// Characters of a label that fit beside its bar.
const LABEL_CHARACTERS: usize = 26;

#[derive(Clone, Debug)]
pub(in crate::replay) struct Bar {
    pub(in crate::replay) label: String,
    pub(in crate::replay) value: f64,
    /// The value as it is shown.
    pub(in crate::replay) text: String,
}

#[derive(Clone, Debug)]
pub(in crate::replay) struct Segment {
    pub(in crate::replay) value: f64,
    pub(in crate::replay) text: String,
}

/// A histogram over a logarithmic axis.
#[derive(Clone, Debug)]
pub(in crate::replay) struct Histogram {
    pub(in crate::replay) title: String,
    /// From, to, and how many.
    pub(in crate::replay) bins: Vec<(f64, f64, u64)>,
    pub(in crate::replay) ticks: Vec<(f64, String)>,
    /// Chosen values.
    pub(in crate::replay) marks: Vec<(f64, String)>,
}

fn begin(title: &str, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(title)
    )
}

fn label(text: &str, y: f64) -> String {
    let mut shown: String = text.chars().take(LABEL_CHARACTERS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!(
        "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
        LABEL_WIDTH - 8.0,
        escape(&shown)
    )
}

/// Horizontal ones, from nothing; the longest fills the width.
pub(in crate::replay) fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let room = WIDTH - LABEL_WIDTH - TEXT_WIDTH;
    let height = ROW_HEIGHT * bars.len() as f64 + 4.0;
    let mut svg = begin(title, height);
    for (index, bar) in bars.iter().enumerate() {
        let y = ROW_HEIGHT * index as f64 + 4.0;
        let length = if most > 0.0 {
            bar.value / most * room
        } else {
            0.0
        };
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "{}<rect class=\"bar\" x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{length:.1}\" height=\"16\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            label(&bar.label, y + 12.5),
            LABEL_WIDTH + length + 6.0,
            y + 12.5,
            escape(&bar.text)
        );
    }
    axis(&mut svg, LABEL_WIDTH, 0.0, LABEL_WIDTH, height);
    svg + "</svg>"
}

/// Each row's segments side by side, as shares of the row.
pub(in crate::replay) fn stacked(
    title: &str,
    names: &[&str],
    rows: &[(String, Vec<Segment>)],
) -> String {
    let room = WIDTH - LABEL_WIDTH - 4.0;
    let per_line = 3;
    let legend = names.len().div_ceil(per_line) as f64 * 18.0 + 8.0;
    let mut svg = begin(title, ROW_HEIGHT * rows.len() as f64 + legend);
    for (index, name) in names.iter().enumerate() {
        let (x, y) = (
            (index % per_line) as f64 * WIDTH / per_line as f64,
            (index / per_line) as f64 * 18.0,
        );
        let _ = write!(
            svg,
            "<rect class=\"c{}\" x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" rx=\"2\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            index % COLOURS,
            x + 17.0,
            y + 10.5,
            escape(name)
        );
    }
    for (row, (name, segments)) in rows.iter().enumerate() {
        let y = legend + ROW_HEIGHT * row as f64;
        svg.push_str(&label(name, y + 12.5));
        let whole: f64 = segments.iter().map(|segment| segment.value).sum();
        let mut x = LABEL_WIDTH;
        for (index, segment) in segments.iter().enumerate() {
            let length = if whole > 0.0 {
                segment.value / whole * room
            } else {
                0.0
            };
            let _ = write!(
                svg,
                "<rect class=\"c{}\" x=\"{x:.1}\" y=\"{y}\" width=\"{length:.1}\" height=\"16\">\
                 <title>{}</title></rect>",
                index % COLOURS,
                escape(&segment.text)
            );
            x += length;
        }
    }
    svg + "</svg>"
}

const PLOT_HEIGHT: f64 = 170.0;
const MARK_LINE: f64 = 15.0;

impl Histogram {
    /// Bars over a logarithmic axis; chosen values are dashed lines with their names above.
    pub(in crate::replay) fn svg(&self) -> String {
        let of_marks = |pick: fn(f64, f64) -> f64, start: f64| {
            self.marks
                .iter()
                .map(|(at, _)| at.max(1.0))
                .fold(start, pick)
        };
        let first = self.bins.first().map_or(1.0, |(low, _, _)| *low);
        let last = self.bins.last().map_or(2.0, |(_, high, _)| *high);
        let (low, high) = (
            of_marks(f64::min, first).max(0.5),
            of_marks(f64::max, last) * 1.05,
        );
        let most = self
            .bins
            .iter()
            .map(|(_, _, count)| *count)
            .max()
            .unwrap_or(0)
            .max(1);
        let most_text = super::grouped(most);
        let left = 14.0 + 7.5 * most_text.len() as f64;
        let right = WIDTH - 12.0;
        let width = (high / low).ln().max(0.1);
        let x = |value: f64| left + ((value.max(low) / low).ln() / width) * (right - left);
        let top = MARK_LINE * self.marks.len() as f64 + 6.0;
        let bottom = top + PLOT_HEIGHT;
        let mut svg = begin(&self.title, bottom + 22.0);
        for (from, to, count) in &self.bins {
            let height = *count as f64 / most as f64 * PLOT_HEIGHT;
            // What is there is seen.
            let height = if *count > 0 { height.max(1.0) } else { 0.0 };
            let _ = write!(
                svg,
                "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\">\
                 <title>{count}</title></rect>",
                x(*from),
                bottom - height,
                (x(*to) - x(*from) - 0.8).max(0.5)
            );
        }
        axis(&mut svg, left, bottom, right, bottom);
        let _ = write!(
            svg,
            "<text class=\"dim\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{most_text}</text>\
             <text class=\"dim\" x=\"{}\" y=\"{bottom}\" text-anchor=\"end\">0</text>",
            left - 5.0,
            top + 10.0,
            left - 5.0
        );
        self.write_ticks(&mut svg, &x, (low, high), bottom);
        self.write_marks(&mut svg, &x, top, bottom);
        svg + "</svg>"
    }

    fn write_ticks(
        &self,
        svg: &mut String,
        x: &dyn Fn(f64) -> f64,
        (low, high): (f64, f64),
        bottom: f64,
    ) {
        let mut free_from = f64::MIN;
        for (at, text) in &self.ticks {
            let middle = x(*at);
            let half = text.chars().count() as f64 * 3.6;
            if (low..=high).contains(at) && middle - half > free_from && middle + half < WIDTH {
                free_from = middle + half + 6.0;
                axis(svg, middle, bottom, middle, bottom + 4.0);
                let _ = write!(
                    svg,
                    "<text class=\"dim\" x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    bottom + 17.0,
                    escape(text)
                );
            }
        }
    }

    fn write_marks(&self, svg: &mut String, x: &dyn Fn(f64) -> f64, top: f64, bottom: f64) {
        for (index, (at, text)) in self.marks.iter().enumerate() {
            let (middle, y) = (x(*at), MARK_LINE * (index as f64 + 1.0) - 3.0);
            let (anchor, shift) = if middle > WIDTH / 2.0 {
                ("end", -5.0)
            } else {
                ("start", 5.0)
            };
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{}\" y2=\"{bottom}\"/>\
                 <text class=\"marktext\" x=\"{:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
                (y - 9.0).min(top),
                middle + shift,
                escape(text)
            );
        }
    }
}

fn axis(svg: &mut String, x1: f64, y1: f64, x2: f64, y2: f64) {
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}
