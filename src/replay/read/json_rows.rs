//! Rows of JSON lines: one flat object on each.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::{
    Rows,
    columns::{Layout, Row},
    input::{Input, MAX_LINE_BYTES},
};
use crate::replay::trace::TraceFault;

pub(super) struct JsonRows {
    reader: Box<dyn BufRead>,
    input: Input,
    line: u64,
    text: Vec<u8>,
    /// The first row, read to learn the names.
    first: Option<Map<String, Value>>,
    row: Row,
}

impl JsonRows {
    pub(super) fn new(reader: Box<dyn BufRead>, input: Input) -> Self {
        Self {
            reader,
            input,
            line: 0,
            text: Vec::new(),
            first: None,
            row: Row::default(),
        }
    }

    /// The next line that is not empty.
    fn next_object(&mut self) -> Result<Option<Result<Map<String, Value>, String>>, TraceFault> {
        loop {
            self.text.clear();
            let read = self.reader.read_until(b'\n', &mut self.text);
            if read.map_err(|error| self.input.fault(self.line, &error))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if self.input.was_cut(self.line) {
                return Ok(Some(Err(format!("is longer than {MAX_LINE_BYTES} bytes"))));
            }
            if self.text.trim_ascii().is_empty() {
                continue;
            }
            return Ok(Some(match serde_json::from_slice(&self.text) {
                Ok(Value::Object(object)) => Ok(object),
                Ok(_) => Err("is no JSON object".to_owned()),
                Err(error) => Err(format!("is no JSON: {error}")),
            }));
        }
    }
}

impl Rows for JsonRows {
    fn header(&mut self) -> Result<Vec<String>, TraceFault> {
        match self.next_object()? {
            None => Ok(Vec::new()),
            Some(Ok(object)) => {
                let names = object.keys().cloned().collect();
                self.first = Some(object);
                Ok(names)
            }
            Some(Err(why)) => Err(TraceFault(format!("line {} {why}", self.line))),
        }
    }

    fn next(&mut self, layout: &Layout) -> Result<Option<(u64, Result<(), String>)>, TraceFault> {
        let object = match self.first.take() {
            Some(first) => Ok(first),
            None => match self.next_object()? {
                None => return Ok(None),
                Some(object) => object,
            },
        };
        let read = object.and_then(|object| self.row.fill_from_json(layout, &object));
        Ok(Some((self.line, read)))
    }

    fn row(&self) -> &Row {
        &self.row
    }
}
