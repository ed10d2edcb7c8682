//! Traces from files: CSV or JSON lines, either of them gzipped.

mod columns;
mod csv_rows;
mod fields;
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
    fields::{Numbers, RowTimes},
    input::Lines,
    json_rows::JsonRows,
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
    /// Between fields of CSV; unset: a comma.
    pub delimiter: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
}

/// A row's line, and what is wrong with the row, which is left out then.
type NextRow = (u64, Result<(), String>);

/// Rows of a file, each as texts by column.
trait Rows {
    /// The names of the columns; of JSON lines, those of the first row.
    fn header(&mut self) -> Result<Vec<String>, TraceFault>;

    /// Reads the next row.
    fn next(&mut self, layout: &Layout, row: &mut Row) -> Result<Option<NextRow>, TraceFault>;

    /// What the fields of the row are parts of.
    fn texts(&self) -> &str;

    fn progress(&self) -> (u64, Option<u64>);
}

/// A trace in a file.
pub struct FileTrace {
    rows: Box<dyn Rows>,
    layout: Layout,
    times: RowTimes,
    row: Row,
    numbers: Numbers,
    bad_rows: BadRows,
    /// A row that was read, and belongs to the next batch.
    waiting: bool,
}

impl FileTrace {
    /// `-`: the standard input.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, TraceFault> {
        let mut lines = Lines::open(path)?;
        let format = match options.format.or_else(|| format_by_name(path)) {
            Some(format) => format,
            None => format_by_content(lines.peek()?),
        };
        let mut rows: Box<dyn Rows> = match format {
            Format::Csv => Box::new(CsvRows::new(lines, options.delimiter.unwrap_or(b','))),
            Format::JsonLines => Box::new(JsonRows::new(lines)),
        };
        let header = rows.header()?;
        if header.is_empty() {
            return Err(TraceFault(format!("{} is empty", path.display())));
        }
        let layout = Layout::new(&header, options)?;
        Ok(Self {
            rows,
            layout,
            times: RowTimes::new(options.time_unit),
            row: Row::default(),
            numbers: Numbers::default(),
            bad_rows: BadRows::default(),
            waiting: false,
        })
    }

    pub const fn kind(&self) -> TraceKind {
        self.layout.kind()
    }

    /// Reads rows until one can be used; false at the end.
    fn next_good_row(&mut self) -> Result<bool, TraceFault> {
        while let Some((line, read)) = self.rows.next(&self.layout, &mut self.row)? {
            let judged = read.and_then(|()| {
                fields::judge(&self.layout, &self.row, self.rows.texts(), &mut self.times)
            });
            match judged {
                Ok(numbers) => {
                    self.numbers = numbers;
                    return Ok(true);
                }
                Err(why) => self.bad_rows.add(line, why),
            }
        }
        Ok(false)
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
            if !self.waiting && !self.next_good_row()? {
                return Ok(false);
            }
            self.waiting = batch.is_full_for(self.numbers.arrived_at_ns);
            if self.waiting {
                return Ok(true);
            }
            fields::push(
                &self.layout,
                &self.row,
                self.rows.texts(),
                &self.numbers,
                batch,
            );
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.rows.progress()
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

fn format_by_content(head: &[u8]) -> Format {
    if head.trim_ascii_start().first() == Some(&b'{') {
        Format::JsonLines
    } else {
        Format::Csv
    }
}
