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

/// A field's number and the wire type of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u32);

impl Key {
    pub(super) const fn varint(number: u32) -> Self {
        Self(number << 3)
    }

    pub(super) const fn fixed64(number: u32) -> Self {
        Self(number << 3 | 1)
    }

    /// Of bytes, texts and messages.
    pub(super) const fn bytes(number: u32) -> Self {
        Self(number << 3 | 2)
    }

    const fn number(self) -> u32 {
        self.0 >> 3
    }

    const fn wire_type(self) -> u32 {
        self.0 & 7
    }
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

    /// The next field's key; its value has to be read or passed over. `None` at the end.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Option<Key>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed::FieldNumber)?;
        match Key(key) {
            key if key.number() == 0 => Err(Malformed::FieldNumber),
            key => Ok(Some(key)),
        }
    }

    /// Passes over the value of a field that the message does not have: its fields have numbers up
    /// to `known`, and those have another wire type.
    #[cold]
    pub(super) fn pass(&mut self, key: Key, known: u32) -> Result<(), Malformed> {
        if key.number() <= known {
            return Err(Malformed::WireType);
        }
        let mut open = Vec::new();
        let mut key = key;
        loop {
            match key.wire_type() {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.array::<8>()?;
                }
                2 => {
                    self.bytes()?;
                }
                3 if open.len() < MAX_GROUP_DEPTH => open.push(key.number()),
                4 if open.pop() == Some(key.number()) => {}
                5 => {
                    self.array::<4>()?;
                }
                3 | 4 => return Err(Malformed::Group),
                _ => return Err(Malformed::WireType),
            }
            if open.is_empty() {
                return Ok(());
            }
            key = self.key()?.ok_or(Malformed::Truncated)?;
        }
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
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
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed::Truncated)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A message within the message.
    #[inline]
    pub(super) fn message(&mut self) -> Result<Self, Malformed> {
        self.bytes().map(Self::new)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Utf8)
    }

    #[inline]
    pub(super) fn fixed64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn double(&mut self) -> Result<f64, Malformed> {
        self.fixed64().map(f64::from_bits)
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
}
