//! Bytes of a file or the standard input: unzipped, without a byte order mark, in lines of a bounded
//! length, and counted.

use std::{
    cell::RefCell,
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
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What is known of the bytes that are being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    state: Rc<RefCell<State>>,
}

#[derive(Debug, Default)]
struct State {
    name: String,
    read: u64,
    size: Option<u64>,
    /// Lines that were cut, in order, until they are asked for.
    cut: Vec<u64>,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<(Self, Box<dyn BufRead>), TraceFault> {
        let input = Self::default();
        let source: Box<dyn Read> = if path == Path::new("-") {
            input.state.borrow_mut().name = "the standard input".to_owned();
            Box::new(io::stdin())
        } else {
            let name = path.display().to_string();
            let fault = |error: io::Error| TraceFault(format!("cannot read {name}: {error}"));
            let file = File::open(path).map_err(fault)?;
            let size = file.metadata().map_err(fault)?.len();
            let mut state = input.state.borrow_mut();
            (state.name, state.size) = (name.clone(), Some(size));
            drop(state);
            Box::new(file)
        };
        let counted = Counted {
            source,
            input: input.clone(),
        };
        let mut packed = BufReader::with_capacity(BUFFER_BYTES, counted);
        let head = packed.fill_buf().map_err(|error| input.fault(0, &error))?;
        let mut reader: Box<dyn BufRead> = if head.starts_with(&GZIP_MAGIC) {
            let unpacked = MultiGzDecoder::new(packed);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else {
            Box::new(packed)
        };
        let head = reader.fill_buf().map_err(|error| input.fault(0, &error))?;
        if head.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        let bounded = BoundedLines {
            reader,
            input: input.clone(),
            line: 1,
            in_line: 0,
        };
        Ok((
            input,
            Box::new(BufReader::with_capacity(BUFFER_BYTES, bounded)),
        ))
    }

    /// Of the packed bytes.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        let state = self.state.borrow();
        (state.read, state.size)
    }

    /// Whether this line was longer than is read. Asked in the order of the lines.
    pub(super) fn was_cut(&self, line: u64) -> bool {
        let cut = &mut self.state.borrow_mut().cut;
        let passed = cut.partition_point(|known| *known < line);
        cut.drain(..passed);
        cut.first() == Some(&line)
    }

    pub(super) fn fault(&self, line: u64, error: &io::Error) -> TraceFault {
        let name = &self.state.borrow().name;
        let after = match line {
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
    input: Input,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.input.state.borrow_mut().read += count as u64;
        Ok(count)
    }
}

/// Passes on no more than [`MAX_LINE_BYTES`] of each line.
struct BoundedLines {
    reader: Box<dyn BufRead>,
    input: Input,
    line: u64,
    in_line: usize,
}

impl Read for BoundedLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let available = self.reader.fill_buf()?;
            if available.is_empty() || buffer.is_empty() {
                return Ok(0);
            }
            let line_end = available.iter().position(|byte| *byte == b'\n');
            let in_this_line = line_end.map_or(available.len(), |end| end + 1);
            let room = MAX_LINE_BYTES.saturating_sub(self.in_line);
            let ends = line_end.is_some();
            let wanted = if in_this_line <= room {
                in_this_line
            } else {
                room
            };
            if wanted == 0 {
                // The line is too long: all but its end is skipped.
                self.note_cut();
                self.reader.consume(in_this_line);
                if ends {
                    (self.line, self.in_line) = (self.line + 1, 0);
                    buffer[0] = b'\n';
                    return Ok(1);
                }
                continue;
            }
            let count = wanted.min(buffer.len());
            buffer[..count].copy_from_slice(&available[..count]);
            self.reader.consume(count);
            if ends && count == in_this_line {
                (self.line, self.in_line) = (self.line + 1, 0);
            } else {
                self.in_line += count;
            }
            return Ok(count);
        }
    }
}

impl BoundedLines {
    fn note_cut(&self) {
        let cut = &mut self.input.state.borrow_mut().cut;
        if cut.last() != Some(&self.line) {
            cut.push(self.line);
        }
    }
}
