//! Rows of JSON lines: one flat object on each.

use serde_json::{Map, Value};

use super::{
    NextRow, Rows,
    columns::{Field, Layout, Row},
    input::{Line, Lines, MAX_LINE_BYTES},
};
use crate::replay::trace::TraceFault;

type Object = Map<String, Value>;

pub(super) struct JsonRows {
    lines: Lines,
    /// The first row, read to learn the names.
    first: Option<Object>,
    texts: String,
}

impl JsonRows {
    pub(super) fn new(lines: Lines) -> Self {
        Self {
            lines,
            first: None,
            texts: String::new(),
        }
    }

    fn next_object(&mut self) -> Result<Option<Result<Object, String>>, TraceFault> {
        let Some(line) = self.lines.next()? else {
            return Ok(None);
        };
        if line == Line::TooLong {
            return Ok(Some(Err(format!("is longer than {MAX_LINE_BYTES} bytes"))));
        }
        Ok(Some(match serde_json::from_slice(self.lines.text()) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err("is no JSON object".to_owned()),
            Err(error) => Err(format!("is no JSON: {error}")),
        }))
    }

    fn keep(&mut self, layout: &Layout, object: &Object, row: &mut Row) -> Result<(), String> {
        row.clear();
        self.texts.clear();
        for field in Field::ALL {
            let found = layout
                .names(field)
                .find_map(|name| Some((name, object.get(name)?)));
            let start = self.texts.len();
            match found {
                None | Some((_, Value::Null)) => continue,
                Some((_, Value::String(text))) => self.texts.push_str(text),
                Some((_, Value::Number(number))) => self.texts.push_str(&number.to_string()),
                Some((name, Value::Bool(_) | Value::Array(_) | Value::Object(_))) => {
                    return Err(format!("{name:?} is neither text nor a number"));
                }
            }
            row.set(field, start..self.texts.len());
        }
        Ok(())
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
            Some(Err(why)) => {
                let line = self.lines.number();
                Err(TraceFault(format!("line {line} {why}")))
            }
        }
    }

    fn next(&mut self, layout: &Layout, row: &mut Row) -> Result<Option<NextRow>, TraceFault> {
        let object = match self.first.take() {
            Some(first) => Ok(first),
            None => match self.next_object()? {
                None => return Ok(None),
                Some(object) => object,
            },
        };
        let kept = object.and_then(|object| self.keep(layout, &object, row));
        Ok(Some((self.lines.number(), kept)))
    }

    fn texts(&self) -> &str {
        &self.texts
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.lines.progress()
    }
}
