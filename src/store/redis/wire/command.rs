//! Commands as they go over the wire: arrays of bulk strings.

/// Commands, one behind the other.
#[derive(Clone, Debug, Default)]
pub(in crate::store::redis) struct Commands {
    bytes: Vec<u8>,
    len: usize,
    /// The words of the last command, whose number stands before them.
    words: Vec<u8>,
    word_count: usize,
}

impl Commands {
    pub(in crate::store::redis) fn with_capacity(commands: usize) -> Self {
        const USUAL_BYTES: usize = 144;
        Self {
            bytes: Vec::with_capacity(commands * USUAL_BYTES),
            ..Self::default()
        }
    }

    /// How many commands there are.
    pub(in crate::store::redis) const fn len(&self) -> usize {
        self.len
    }

    /// Begins a command; its other words follow.
    pub(in crate::store::redis) fn cmd(&mut self, name: &str) -> &mut Self {
        self.seal();
        self.len += 1;
        self.arg(name)
    }

    pub(in crate::store::redis) fn arg(&mut self, word: impl Word) -> &mut Self {
        word.push(&mut self.words);
        self.word_count += 1;
        self
    }

    /// A whole command, of which some words are the same every time.
    pub(in crate::store::redis) fn filled(&mut self, form: &Form, words: [&[u8]; 2]) {
        self.seal();
        self.len += 1;
        self.bytes.extend_from_slice(&form.head);
        for word in words {
            push_word(word, &mut self.bytes);
        }
        self.bytes.extend_from_slice(&form.tail);
    }

    /// All of them; none are left.
    pub(in crate::store::redis) fn take(&mut self) -> Vec<u8> {
        self.seal();
        self.len = 0;
        std::mem::take(&mut self.bytes)
    }

    fn seal(&mut self) {
        if self.word_count > 0 {
            push_head(b'*', self.word_count, &mut self.bytes);
            self.bytes.extend_from_slice(&self.words);
            self.words.clear();
            self.word_count = 0;
        }
    }
}

/// A command but for two words in its middle.
#[derive(Debug)]
pub(in crate::store::redis) struct Form {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Form {
    pub(in crate::store::redis) fn new(before: &[&str], after: &[&str]) -> Self {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        push_head(b'*', before.len() + 2 + after.len(), &mut head);
        for word in before {
            push_word(word.as_bytes(), &mut head);
        }
        for word in after {
            push_word(word.as_bytes(), &mut tail);
        }
        Self { head, tail }
    }
}

fn push_head(kind: u8, count: usize, out: &mut Vec<u8>) {
    let (tens, ones) = (b'0' + (count / 10) as u8 % 10, b'0' + (count % 10) as u8);
    match count {
        0..10 => out.extend_from_slice(&[kind, ones, b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']),
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn push_word(word: &[u8], out: &mut Vec<u8>) {
    push_head(b'$', word.len(), out);
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

pub(in crate::store::redis) trait Word {
    fn push(self, out: &mut Vec<u8>);
}

macro_rules! bytes_are_words {
    ($($text:ty),*) => {$(
        impl Word for $text {
            fn push(self, out: &mut Vec<u8>) {
                push_word(self.as_ref() as &[u8], out);
            }
        }
    )*};
}

macro_rules! numbers_are_words {
    ($($number:ty),*) => {$(
        impl Word for $number {
            fn push(self, out: &mut Vec<u8>) {
                push_word(itoa::Buffer::new().format(self).as_bytes(), out);
            }
        }
    )*};
}

bytes_are_words!(&[u8], &str, &String, &Vec<u8>, String);
numbers_are_words!(i32, u32, u64, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_library() {
        let (mut ours, mut theirs) = (Commands::default(), redis::Pipeline::new());
        let long = vec![b'x'; 1000];
        ours.cmd("SET").arg("k").arg(&long).arg("PX").arg(1000_u64);
        theirs
            .cmd("SET")
            .arg("k")
            .arg(long.as_slice())
            .arg("PX")
            .arg(1000_u64);
        ours.cmd("PING");
        theirs.cmd("PING");
        ours.cmd("EVAL").arg(&b"\r\n\0"[..]).arg(0);
        theirs.cmd("EVAL").arg(&b"\r\n\0"[..]).arg(0);
        let form = Form::new(&["SET"], &["NX", "PX", "86400000"]);
        for key in ["", "k", "a key of ten", &"k".repeat(100)] {
            ours.filled(&form, [key.as_bytes(), b"value"]);
            let theirs = theirs.cmd("SET").arg(key).arg("value").arg("NX");
            theirs.arg("PX").arg(86_400_000);
        }
        ours.cmd("DEL").arg("k");
        theirs.cmd("DEL").arg("k");
        assert_eq!(ours.len(), theirs.len());
        assert_eq!(ours.take(), theirs.get_packed_pipeline());
        assert_eq!((ours.len(), ours.take()), (0, Vec::new()));
    }
}
