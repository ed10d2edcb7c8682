//! The fields of a protobuf message, one after the other, borrowed from its bytes.
//!
//! Accepts and refuses what prost does (<https://protobuf.dev/programming-guides/encoding/>).

/// A message that cannot be read, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it ends within a field")]
    Truncated,
    #[error("a number has more than 64 bits")]
    Varint,
    #[error("a field has no number, or one that is too large")]
    FieldNumber,
    #[error("a field has a wire type that does not exist, or not its own")]
    WireType,
    #[error("a text is not UTF-8")]
    Utf8,
    #[error("a group does not end, or was not begun, or groups lie too deep in each other")]
    Group,
}

/// What a field holds, as far as the wire says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
    /// No message of this API has groups: one is passed over.
    Group,
}

const MAX_GROUP_DEPTH: usize = 100;

/// What of a message was not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field's number and value; `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        let value = match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Value::Bytes(self.bytes()?),
            3 => {
                self.pass_group(number)?;
                Value::Group
            }
            5 => {
                let _: [u8; 4] = self.array()?;
                Value::Fixed32
            }
            4 => return Err(Malformed::Group),
            _ => return Err(Malformed::WireType),
        };
        Ok(Some((number, value)))
    }

    #[inline]
    fn key(&mut self) -> Result<(u32, u8), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed::FieldNumber)?;
        match key >> 3 {
            0 => Err(Malformed::FieldNumber),
            number => Ok((number, (key & 7) as u8)),
        }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.rest {
            [byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            [first, second @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(first & 0x7f) | u64::from(second) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                // Nine bytes hold 63 bits.
                if index == 9 && byte > 1 {
                    return Err(Malformed::Varint);
                }
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 {
            Malformed::Truncated
        } else {
            Malformed::Varint
        })
    }

    #[inline]
    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed::Truncated)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    /// Passes over what is in a group, and over its end.
    #[cold]
    fn pass_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            match self.key()? {
                (_, 0) => {
                    self.varint()?;
                }
                (_, 1) => {
                    let _: [u8; 8] = self.array()?;
                }
                (_, 2) => {
                    self.bytes()?;
                }
                (inner, 3) if open.len() < MAX_GROUP_DEPTH => open.push(inner),
                (ended, 4) if ended == innermost => {
                    open.pop();
                }
                (_, 5) => {
                    let _: [u8; 4] = self.array()?;
                }
                (_, 3 | 4) => return Err(Malformed::Group),
                _ => return Err(Malformed::WireType),
            }
        }
        Ok(())
    }
}

/// A value must be of its field's type.
impl<'a> Value<'a> {
    #[inline]
    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed::WireType),
        }
    }

    /// Of a message within a message.
    #[inline]
    pub(super) fn message(self) -> Result<Reader<'a>, Malformed> {
        self.bytes().map(Reader::new)
    }

    #[inline]
    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Utf8)
    }

    #[inline]
    pub(super) fn varint(self) -> Result<u64, Malformed> {
        match self {
            Value::Varint(number) => Ok(number),
            _ => Err(Malformed::WireType),
        }
    }

    #[inline]
    pub(super) fn fixed64(self) -> Result<u64, Malformed> {
        match self {
            Value::Fixed64(bits) => Ok(bits),
            _ => Err(Malformed::WireType),
        }
    }

    #[inline]
    pub(super) fn double(self) -> Result<f64, Malformed> {
        self.fixed64().map(f64::from_bits)
    }
}
