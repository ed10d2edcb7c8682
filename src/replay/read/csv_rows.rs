//! Rows of CSV: RFC 4180, with LF or CRLF.

use std::io::BufRead;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{
    Rows,
    columns::{Layout, Row},
    input::{Input, MAX_LINE_BYTES},
};
use crate::replay::trace::TraceFault;

pub(super) struct CsvRows {
    reader: Reader<Box<dyn BufRead>>,
    input: Input,
    record: ByteRecord,
    row: Row,
}

impl CsvRows {
    pub(super) fn new(reader: Box<dyn BufRead>, input: Input) -> Self {
        Self {
            reader: ReaderBuilder::new().flexible(true).from_reader(reader),
            input,
            record: ByteRecord::new(),
            row: Row::default(),
        }
    }

    fn fault(&self, error: csv::Error) -> TraceFault {
        let line = self.reader.position().line();
        match error.into_kind() {
            ErrorKind::Io(error) => self.input.fault(line, &error),
            other => TraceFault(format!("line {line} is no CSV: {other:?}")),
        }
    }
}

impl Rows for CsvRows {
    fn header(&mut self) -> Result<Vec<String>, TraceFault> {
        match self.reader.byte_headers() {
            Ok(names) => Ok(names
                .iter()
                .map(|name| String::from_utf8_lossy(name).trim().to_owned())
                .collect()),
            Err(error) => Err(self.fault(error)),
        }
    }

    fn next(&mut self, layout: &Layout) -> Result<Option<(u64, Result<(), String>)>, TraceFault> {
        let found = self.reader.read_byte_record(&mut self.record);
        if !found.map_err(|error| self.fault(error))? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        if self.input.was_cut(line) {
            let why = format!("is longer than {MAX_LINE_BYTES} bytes");
            return Ok(Some((line, Err(why))));
        }
        let (fields, columns) = (self.record.len(), layout.column_count());
        if fields != columns {
            let why = format!("has {fields} fields, the header {columns}");
            return Ok(Some((line, Err(why))));
        }
        let record = &self.record;
        let read = self.row.fill(layout, |place| record.get(place));
        Ok(Some((line, read)))
    }

    fn row(&self) -> &Row {
        &self.row
    }
}
