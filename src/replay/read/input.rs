//! Lines of a file or the standard input: unzipped, without a byte order mark, of a bounded length.

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    rc::Rc,
};

use flate2::bufread::MultiGzDecoder;

use crate::replay::trace::TraceFault;

/// Longer lines are no rows: what is beyond is skipped.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 1 << 18;
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF_16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    name: String,
    number: u64,
    text: Vec<u8>,
    packed_read: Rc<Cell<u64>>,
    packed_size: Option<u64>,
}

/// A line that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole,
    /// It is longer than [`MAX_LINE_BYTES`].
    TooLong,
}

impl Lines {
    /// `-`: the standard input.
    pub(super) fn open(path: &Path) -> Result<Self, TraceFault> {
        let mut lines = Self {
            reader: Box::new(io::empty()),
            name: path.display().to_string(),
            number: 0,
            text: Vec::new(),
            packed_read: Rc::default(),
            packed_size: None,
        };
        let source: Box<dyn Read> = if path == Path::new("-") {
            "the standard input".clone_into(&mut lines.name);
            Box::new(io::stdin())
        } else {
            let file = File::open(path).map_err(|error| lines.fault(&error))?;
            let about = file.metadata().map_err(|error| lines.fault(&error))?;
            lines.packed_size = Some(about.len()).filter(|_| about.is_file());
            Box::new(file)
        };
        let counted = Counted {
            source,
            read: Rc::clone(&lines.packed_read),
        };
        let mut packed = BufReader::with_capacity(BUFFER_BYTES, counted);
        let head = packed.fill_buf().map_err(|error| lines.fault(&error))?;
        lines.reader = if head.starts_with(GZIP_MAGIC) {
            let unpacked = MultiGzDecoder::new(packed);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else {
            Box::new(packed)
        };
        let head = lines.peek()?;
        if UTF_16_MARKS.iter().any(|mark| head.starts_with(mark)) {
            let name = &lines.name;
            return Err(TraceFault(format!("{name} is UTF-16: save it as UTF-8")));
        }
        if head.starts_with(UTF_8_MARK) {
            lines.reader.consume(UTF_8_MARK.len());
        }
        Ok(lines)
    }

    /// Some of what comes next.
    pub(super) fn peek(&mut self) -> Result<&[u8], TraceFault> {
        // Asked twice: the borrow of a first answer would end only with the function.
        if let Err(error) = self.reader.fill_buf() {
            return Err(self.fault(&error));
        }
        Ok(self.reader.fill_buf().unwrap_or_default())
    }

    /// Reads the next line that is not empty.
    pub(super) fn next(&mut self) -> Result<Option<Line>, TraceFault> {
        loop {
            self.text.clear();
            let mut bounded = self.reader.by_ref().take(MAX_LINE_BYTES as u64);
            let read = bounded.read_until(b'\n', &mut self.text);
            if read.map_err(|error| self.fault(&error))? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.text.last() == Some(&b'\n') {
                self.text.pop();
            } else if self.text.len() == MAX_LINE_BYTES {
                let skipped = self.reader.skip_until(b'\n');
                skipped.map_err(|error| self.fault(&error))?;
                return Ok(Some(Line::TooLong));
            }
            if self.text.last() == Some(&b'\r') {
                self.text.pop();
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(Some(Line::Whole));
            }
        }
    }

    /// The line that was read last, without its end.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The same line's number, from 1.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Packed bytes read of how many.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        (self.packed_read.get(), self.packed_size)
    }

    fn fault(&self, error: &io::Error) -> TraceFault {
        let name = &self.name;
        let after = match self.number {
            0 => String::new(),
            line => format!(" after line {line}"),
        };
        TraceFault(match error.kind() {
            io::ErrorKind::UnexpectedEof => format!(
                "{name} ends{after} in the middle of its gzip stream: it was cut off; fetch it again"
            ),
            _ => format!("cannot read {name}{after}: {error}"),
        })
    }
}

struct Counted {
    source: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}
