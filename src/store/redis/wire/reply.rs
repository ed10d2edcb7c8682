//! RESP 2 and 3: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use redis::Value;

/// Deeper than any reply to what dedupd asks.
const MAX_DEPTH: u32 = 16;
/// Longer than any reply to what dedupd asks.
const MAX_BYTES: usize = 64 << 20;
/// Room that is made for items before they are seen.
const MAX_RESERVED: usize = 1024;

const NONSENSE: &str = "the server's answer is no RESP";

/// The first reply in `bytes` and how many it takes; `None` if there is not all of it yet.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Value, usize)>, &'static str> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.value(0) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) if bytes.len() > MAX_BYTES => Err("the server's answer is too long"),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Nonsense) => Err(NONSENSE),
    }
}

enum Stop {
    Incomplete,
    Nonsense,
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn value(&mut self, depth: u32) -> Result<Value, Stop> {
        if depth > MAX_DEPTH {
            return Err(Stop::Nonsense);
        }
        let start = self.at;
        let line = self.line()?;
        let (&kind, text) = line.split_first().ok_or(Stop::Nonsense)?;
        Ok(match kind {
            b'+' if text == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
            b':' => Value::Int(number(text)?),
            b'$' => match length(text)? {
                Some(length) => Value::BulkString(self.bulk(length)?.to_vec()),
                None => Value::Nil,
            },
            b'*' => match length(text)? {
                Some(length) => Value::Array(self.values(length, depth)?),
                None => Value::Nil,
            },
            b'_' => Value::Nil,
            // Its parts are the library's own.
            b'-' => {
                redis::parse_redis_value(&self.bytes[start..self.at]).map_err(|_| Stop::Nonsense)?
            }
            b'!' => {
                let error = self.bulk(length(text)?.ok_or(Stop::Nonsense)?)?;
                let line = [b"-", error, b"\r\n"].concat();
                redis::parse_redis_value(&line).map_err(|_| Stop::Nonsense)?
            }
            b'#' => Value::Boolean(text == b"t"),
            b',' => Value::Double(
                std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .ok_or(Stop::Nonsense)?,
            ),
            // What stands before the text tells its format.
            b'=' => {
                let text = self.bulk(length(text)?.ok_or(Stop::Nonsense)?)?;
                Value::BulkString(text.get(4..).ok_or(Stop::Nonsense)?.to_vec())
            }
            b'(' => Value::BulkString(text.to_vec()),
            b'%' => {
                let pairs = length(text)?.ok_or(Stop::Nonsense)?;
                let mut values = self.values(pairs.checked_mul(2).ok_or(Stop::Nonsense)?, depth)?;
                let mut drained = values.drain(..);
                let mut map = Vec::with_capacity(pairs.min(MAX_RESERVED));
                while let (Some(key), Some(value)) = (drained.next(), drained.next()) {
                    map.push((key, value));
                }
                Value::Map(map)
            }
            b'~' => Value::Set(self.values(length(text)?.ok_or(Stop::Nonsense)?, depth)?),
            b'>' => Value::Push {
                kind: redis::PushKind::Other(String::new()),
                data: self.values(length(text)?.ok_or(Stop::Nonsense)?, depth)?,
            },
            _ => return Err(Stop::Nonsense),
        })
    }

    fn values(&mut self, count: usize, depth: u32) -> Result<Vec<Value>, Stop> {
        // Three bytes each at least.
        if count > MAX_BYTES / 3 {
            return Err(Stop::Nonsense);
        }
        let mut values = Vec::with_capacity(count.min(MAX_RESERVED));
        for _ in 0..count {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    /// Up to the end of the line, which is taken too.
    fn line(&mut self) -> Result<&'b [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = memchr::memchr(b'\n', rest).ok_or(Stop::Incomplete)?;
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").ok_or(Stop::Nonsense)
    }

    fn bulk(&mut self, length: usize) -> Result<&'b [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let whole = rest.get(..length + 2).ok_or(Stop::Incomplete)?;
        let text = whole.strip_suffix(b"\r\n").ok_or(Stop::Nonsense)?;
        self.at += length + 2;
        Ok(text)
    }
}

fn number(text: &[u8]) -> Result<i64, Stop> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Stop::Nonsense)
}

/// `None`: nothing, in the older protocol.
fn length(text: &[u8]) -> Result<Option<usize>, Stop> {
    match number(text)? {
        -1 => Ok(None),
        length => usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_BYTES)
            .map(Some)
            .ok_or(Stop::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut bytes: &[u8]) -> Result<Vec<Value>, &'static str> {
        let mut values = Vec::new();
        while let Some((value, length)) = read(bytes)? {
            values.push(value);
            bytes = &bytes[length..];
        }
        Ok(values)
    }

    const REPLIES: &[u8] =
        b"+OK\r\n+PONG\r\n:-7\r\n$-1\r\n_\r\n$3\r\na\r\n\r\n*3\r\n:256\r\n$0\r\n\r\n*-1\r\n\
        -WRONGTYPE Operation against a key\r\n%1\r\n+proto\r\n:3\r\n#t\r\n,1.5\r\n=7\r\ntxt:abc\r\n\
        ~1\r\n:1\r\n*0\r\n!10\r\nERR a long\r\n";

    #[test]
    fn replies_are_those_of_the_library() {
        let values = all(REPLIES).expect("RESP");
        assert_eq!(values.len(), 15);
        let mut rest = REPLIES;
        for value in &values {
            let (_, length) = read(rest).expect("RESP").expect("a whole one");
            let theirs = redis::parse_redis_value(&rest[..length]).expect("RESP");
            match (value, &theirs) {
                // Its format is of no interest.
                (Value::BulkString(text), Value::VerbatimString { text: theirs, .. }) => {
                    assert_eq!(text, theirs.as_bytes());
                }
                _ => assert_eq!(*value, theirs),
            }
            rest = &rest[length..];
        }
    }

    #[test]
    fn a_part_of_a_reply_is_not_yet_one() {
        for end in 0..REPLIES.len() {
            let values = all(&REPLIES[..end]).expect("RESP");
            let more = all(REPLIES).expect("RESP");
            assert!(more.starts_with(&values), "{end}");
        }
    }

    #[test]
    fn what_is_no_resp_is_refused() {
        let deep = "*1\r\n".repeat(100);
        for bytes in [
            "hello\r\n",
            "\r\n",
            "+OK\n",
            ":x\r\n",
            "$-2\r\n",
            "$9999999999\r\n",
            "*9999999999999999999\r\n",
            "*60000000\r\n",
            "$3\r\nabcde\r\n",
            "%-1\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
            deep.as_str(),
        ] {
            assert!(read(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
