//! Traces from files: CSV or JSON lines, either of them gzipped.

mod columns;
mod csv_rows;
mod input;
mod json_rows;
mod times;

use std::path::Path;

pub use self::{
    columns::{Columns, TraceKind},
    times::TimeUnit,
};
use self::{
    columns::{Layout, Row},
    csv_rows::CsvRows,
    input::Input,
    json_rows::JsonRows,
    times::Times,
};
use super::trace::{BadRows, Trace, TraceBatch, TraceFault};

/// How a trace is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Unset: by the name, `.csv`, `.jsonl` or `.ndjson`, before a `.gz`; else by the first byte.
    pub format: Option<Format>,
    /// Unset: by the columns that are there.
    pub kind: Option<TraceKind>,
    pub columns: Columns,
    /// Unset: by the size of the first number.
    pub time_unit: Option<TimeUnit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
}

/// Rows of a file, each as texts by column.
trait Rows {
    /// The names of the columns; of JSON lines, those of the first row.
    fn header(&mut self) -> Result<Vec<String>, TraceFault>;

    /// Reads the next row; `Err` in the answer: it cannot be read, and the reading goes on.
    fn next(&mut self, layout: &Layout) -> Result<Option<(u64, Result<(), String>)>, TraceFault>;

    /// The fields of the row that was read last, in the layout's order.
    fn row(&self) -> &Row;
}

/// A trace in a file.
pub struct FileTrace {
    rows: Box<dyn Rows>,
    layout: Layout,
    times: Times,
    input: Input,
    bad_rows: BadRows,
    /// A row that was read, and belongs to the next batch.
    waiting: bool,
}

impl FileTrace {
    /// `-`: the standard input.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, TraceFault> {
        let (input, mut reader) = Input::open(path)?;
        let format = match options.format.or_else(|| format_by_name(path)) {
            Some(format) => format,
            None => format_by_content(&mut reader, &input)?,
        };
        let mut rows: Box<dyn Rows> = match format {
            Format::Csv => Box::new(CsvRows::new(reader, input.clone())),
            Format::JsonLines => Box::new(JsonRows::new(reader, input.clone())),
        };
        let header = rows.header()?;
        let layout = Layout::new(&header, options)?;
        Ok(Self {
            rows,
            layout,
            times: Times::new(options.time_unit),
            input,
            bad_rows: BadRows::default(),
            waiting: false,
        })
    }

    pub const fn kind(&self) -> TraceKind {
        self.layout.kind()
    }
}

impl std::fmt::Debug for FileTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileTrace")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Trace for FileTrace {
    fn fill(&mut self, batch: &mut TraceBatch) -> Result<bool, TraceFault> {
        loop {
            if !self.waiting {
                match self.rows.next(&self.layout)? {
                    None => return Ok(false),
                    Some((line, Err(why))) => {
                        self.bad_rows.add(line, why);
                        continue;
                    }
                    Some((line, Ok(()))) => {
                        let judged = self.layout.judge(self.rows.row(), &mut self.times);
                        if let Err(why) = judged {
                            self.bad_rows.add(line, why);
                            continue;
                        }
                    }
                }
            }
            let event = self.layout.event(self.rows.row());
            self.waiting = batch.is_full_for(event.arrived_at_ns);
            if self.waiting {
                return Ok(true);
            }
            batch.push(
                event.about,
                event.occurred_at_ns,
                event.arrived_at_ns,
                event.position,
                event.occurrence,
            );
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }

    fn bad_rows(&self) -> &BadRows {
        &self.bad_rows
    }
}

fn format_by_name(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.')?.1 {
        "csv" => Some(Format::Csv),
        "jsonl" | "ndjson" | "json" => Some(Format::JsonLines),
        _ => None,
    }
}

fn format_by_content(
    reader: &mut Box<dyn std::io::BufRead>,
    input: &Input,
) -> Result<Format, TraceFault> {
    let head = reader.fill_buf().map_err(|error| input.fault(0, &error))?;
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
    Ok(if first == Some(&b'{') {
        Format::JsonLines
    } else {
        Format::Csv
    })
}
