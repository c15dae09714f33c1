//! The few things of protocol buffers that a Perfetto trace needs.

/// A message that is being made.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// A number.
    pub(super) fn uint(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, 0);
        self.varint(value);
        self
    }

    /// A number of eight bytes.
    pub(super) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A text, or a message within this one.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    /// A message within this one, which is made now.
    pub(super) fn message(&mut self, field: u32, make: impl FnOnce(&mut Self)) -> &mut Self {
        self.tag(field, 2);
        // Most are short: their length has one byte. For a longer one, its bytes move.
        let at = self.0.len();
        self.0.push(0);
        make(self);
        let len = self.0.len() - at - 1;
        if len < 0x80 {
            self.0[at] = len.to_le_bytes()[0];
        } else {
            let body = self.0.split_off(at + 1);
            self.0.truncate(at);
            self.varint(len as u64);
            self.0.extend_from_slice(&body);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_messages_are_laid_out_as_protocol_buffers_have_them() {
        let mut message = Message::default();
        message.uint(1, 150).text(2, "testing").fixed64(47, 1);
        assert_eq!(
            message.0,
            [
                0x08, 0x96, 0x01, 0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g', 0xf9, 0x02, 1, 0, 0, 0,
                0, 0, 0, 0
            ]
        );
        for len in [0, 1, 127, 128, 300, 20_000] {
            let text = "x".repeat(len);
            let (mut outer, mut inner) = (Message::default(), Message::default());
            inner.text(3, &text);
            let mut plain = Message::default();
            plain.bytes(1, &inner.0);
            outer.message(1, |message| {
                message.text(3, &text);
            });
            assert_eq!(outer.0, plain.0);
        }
    }
}
