//! Rows of CSV, with LF or CRLF, one on each line: a quote that is left open spoils its own line
//! and not the rest of the file.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::{
    NextRow, Rows,
    columns::{Layout, Row},
    input::{Line, Lines, MAX_LINE_BYTES},
};
use crate::replay::trace::TraceFault;

const MAX_FIELDS: usize = 4096;

pub(super) struct CsvRows {
    lines: Lines,
    delimiter: u8,
    parser: Reader,
    /// The fields of a row with quotes, end to end; of another row, the line itself.
    unquoted: Vec<u8>,
    has_quotes: bool,
    /// Where each field ends in its text; the next one begins there, or behind the delimiter.
    ends: Vec<usize>,
}

impl CsvRows {
    pub(super) fn new(lines: Lines, delimiter: u8) -> Self {
        Self {
            lines,
            delimiter,
            parser: ReaderBuilder::new().delimiter(delimiter).build(),
            unquoted: Vec::new(),
            has_quotes: false,
            ends: Vec::new(),
        }
    }

    fn split(&mut self) -> Result<(), &'static str> {
        let line = self.lines.text();
        self.has_quotes = memchr::memchr(b'"', line).is_some();
        self.ends.clear();
        if !self.has_quotes {
            self.ends.extend(memchr::memchr_iter(self.delimiter, line));
            self.ends.push(line.len());
            return Ok(());
        }
        self.parser.reset();
        self.unquoted.resize(line.len() + 1, 0);
        self.ends.resize(MAX_FIELDS, 0);
        let (first, read, written, fields) =
            self.parser
                .read_record(line, &mut self.unquoted, &mut self.ends);
        let (result, _, more, last) = match first {
            ReadRecordResult::InputEmpty if read == line.len() => self.parser.read_record(
                b"\n",
                &mut self.unquoted[written..],
                &mut self.ends[fields..],
            ),
            other => (other, 0, 0, 0),
        };
        match result {
            ReadRecordResult::Record => {
                self.unquoted.truncate(written + more);
                self.ends.truncate(fields + last);
                Ok(())
            }
            ReadRecordResult::InputEmpty => Err("has a quote that does not end on its line"),
            ReadRecordResult::OutputFull
            | ReadRecordResult::OutputEndsFull
            | ReadRecordResult::End => Err("has too many fields"),
        }
    }

    fn field(&self, index: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.ends.get(index)?;
        let delimiter = usize::from(!self.has_quotes);
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => self.ends[before] + delimiter,
        };
        Some(start..end)
    }

    fn bytes(&self) -> &[u8] {
        if self.has_quotes {
            &self.unquoted
        } else {
            self.lines.text()
        }
    }
}

impl Rows for CsvRows {
    fn header(&mut self) -> Result<Vec<String>, TraceFault> {
        match self.lines.next()? {
            None => return Ok(Vec::new()),
            Some(Line::TooLong) => {
                let why = format!("line 1 is longer than {MAX_LINE_BYTES} bytes");
                return Err(TraceFault(why));
            }
            Some(Line::Whole) => {}
        }
        self.split()
            .map_err(|why| TraceFault(format!("line {} {why}", self.lines.number())))?;
        Ok((0..self.ends.len())
            .filter_map(|index| self.field(index))
            .map(|range| {
                String::from_utf8_lossy(&self.bytes()[range])
                    .trim()
                    .to_owned()
            })
            .collect())
    }

    fn next(&mut self, layout: &Layout, row: &mut Row) -> Result<Option<NextRow>, TraceFault> {
        let Some(line) = self.lines.next()? else {
            return Ok(None);
        };
        let number = self.lines.number();
        let bad = |why: String| Ok(Some((number, Err(why))));
        if line == Line::TooLong {
            return bad(format!("is longer than {MAX_LINE_BYTES} bytes"));
        }
        if let Err(why) = self.split() {
            return bad(why.to_owned());
        }
        let (fields, columns) = (self.ends.len(), layout.column_count());
        if fields != columns {
            return bad(format!("has {fields} fields, the header {columns}"));
        }
        if std::str::from_utf8(self.bytes()).is_err() {
            return bad("is not UTF-8".to_owned());
        }
        row.place(layout, |column| self.field(column));
        Ok(Some((number, Ok(()))))
    }

    fn texts(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.lines.progress()
    }
}
