//! Programs of the kernel's packet filter (classic BPF, bpf(4) and `Documentation/networking/filter.rst` of Linux): what a group of sockets
//! deals frames out by ([`crate::Socket::deal_by`]).
//!
//! The machine has an accumulator A, an index X and 16 places of memory, all of 32 bits. In a group a program begins at what is behind the
//! Ethernet header and a tag that the kernel took out, and A at its end is the socket's number, modulo how many there are. Reading behind the frame's end ends
//! the program with 0.

use std::fmt;

/// Places of memory.
pub const PLACES: u32 = 16;
/// Where the kernel keeps what is not in the frame (`SKF_AD_OFF`), and of that the EtherType, whose frame it is, and the tag that it took out.
const ANCILLARY: u32 = 0xffff_f000;
const ETHER_TYPE: u32 = ANCILLARY;
const PACKET_TYPE: u32 = ANCILLARY + 4;
const TAG: u32 = ANCILLARY + 44;

/// What an operation takes besides A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A number.
    Number(u32),
    /// X.
    Index,
}

/// An operation on A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A + operand, modulo 2^32.
    Add,
    /// A × operand, modulo 2^32.
    Multiply,
    /// Bits that are in both.
    And,
    /// Bits that are in one of both, or in both.
    Or,
    /// Bits that are in one of both.
    Xor,
    /// A × 2^operand, modulo 2^32; the operand is below 32.
    ShiftLeft,
    /// A ÷ 2^operand; the operand is below 32.
    ShiftRight,
}

/// How much a load reads, in the network's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    Word,
    /// 16 bits.
    Half,
    /// 8 bits.
    Byte,
}

/// A question about A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A is the number.
    Is(u32),
    /// A has one of the number's bits.
    HasAnyOf(u32),
    /// A is X or more.
    IsNotBelowIndex,
}

/// A place in a program that jumps lead to; forward only.
#[derive(Debug)]
pub struct Label(usize);

/// A program, finished.
#[derive(Clone)]
pub struct Program(Vec<libc::sock_filter>);

/// A program as it is written.
#[derive(Debug, Default)]
pub struct Writer {
    code: Vec<Instruction>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
}

#[derive(Clone, Copy, Debug)]
enum Instruction {
    Plain {
        code: u32,
        k: u32,
    },
    /// To the label if the condition holds, or always.
    Jump(Option<Condition>, usize),
}

impl fmt::Debug for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a program of {} instructions", self.0.len())
    }
}

impl Program {
    /// The one that refuses every frame, as a filter of a socket.
    pub(crate) fn refusal() -> Program {
        let mut writer = Writer::default();
        writer.end_with(0);
        writer.finish()
    }

    /// The one that refuses frames that the machine itself sends by the interface.
    pub(crate) fn refusal_of_outgoing() -> Program {
        let mut writer = Writer::default();
        let refuse = writer.label();
        writer.load(Width::Word, PACKET_TYPE);
        writer.jump_if(Condition::Is(libc::PACKET_OUTGOING.into()), &refuse);
        writer.end_with(u32::MAX);
        writer.put(refuse);
        writer.end_with(0);
        writer.finish()
    }

    /// The instructions, as the kernel takes them: `code` is valid as long as this is, and read only.
    pub(crate) fn as_kernel(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            len: self.0.len() as libc::c_ushort,
            filter: self.0.as_ptr().cast_mut(),
        }
    }
}

impl Writer {
    fn push(&mut self, code: u32, k: u32) {
        self.code.push(Instruction::Plain { code, k });
    }

    /// A = what the frame has at `at` bytes, in front of which there are as many more as X says.
    pub fn load_behind_index(&mut self, width: Width, at: u32) {
        self.push(libc::BPF_LD | width.code() | libc::BPF_IND, at);
    }

    /// A = what the frame has at `at` bytes.
    pub fn load(&mut self, width: Width, at: u32) {
        self.push(libc::BPF_LD | width.code() | libc::BPF_ABS, at);
    }

    /// A = the EtherType behind a tag that the kernel took out.
    pub fn load_ether_type(&mut self) {
        self.load(Width::Word, ETHER_TYPE);
    }

    /// A = the tag that the kernel took out, 0 where there was none.
    pub fn load_tag(&mut self) {
        self.load(Width::Word, TAG);
    }

    /// A = a number.
    pub fn set(&mut self, number: u32) {
        self.push(libc::BPF_LD | libc::BPF_IMM, number);
    }

    /// A = a place of memory.
    pub fn recall(&mut self, place: u32) {
        debug_assert!(place < PLACES);
        self.push(libc::BPF_LD | libc::BPF_MEM, place);
    }

    /// X = a place of memory.
    pub fn recall_index(&mut self, place: u32) {
        debug_assert!(place < PLACES);
        self.push(libc::BPF_LDX | libc::BPF_MEM, place);
    }

    /// A place of memory = A.
    pub fn keep(&mut self, place: u32) {
        debug_assert!(place < PLACES);
        self.push(libc::BPF_ST, place);
    }

    /// X = A.
    pub fn make_index(&mut self) {
        self.push(libc::BPF_MISC | libc::BPF_TAX, 0);
    }

    /// A = A and the operand, put together.
    pub fn apply(&mut self, operation: Operation, operand: Operand) {
        let (source, k) = match operand {
            Operand::Number(number) => (libc::BPF_K, number),
            Operand::Index => (libc::BPF_X, 0),
        };
        self.push(libc::BPF_ALU | operation.code() | source, k);
    }

    /// Ends the program with A.
    pub fn end(&mut self) {
        self.push(libc::BPF_RET | libc::BPF_A, 0);
    }

    /// Ends the program with a number.
    pub fn end_with(&mut self, number: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, number);
    }

    /// A label, to be put somewhere behind the jumps to it.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Goes on at a label.
    pub fn jump(&mut self, to: &Label) {
        self.code.push(Instruction::Jump(None, to.0));
    }

    /// Goes on at a label if the condition holds.
    pub fn jump_if(&mut self, condition: Condition, to: &Label) {
        self.code.push(Instruction::Jump(Some(condition), to.0));
    }

    /// The label is here.
    pub fn put(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// The program.
    ///
    /// # Panics
    /// A label that is jumped to was not put behind the jump, or the program is longer than the kernel takes (4096 instructions): the
    /// program is wrong, whatever the frames are.
    pub fn finish(self) -> Program {
        // A question leads a few instructions on at most, a jump without one anywhere: a question that leads far is one of each.
        let mut starts = Vec::with_capacity(self.code.len() + 1);
        let mut length = 0;
        for instruction in &self.code {
            starts.push(length);
            length += match instruction {
                Instruction::Jump(Some(_), _) => 2,
                _ => 1,
            };
        }
        starts.push(length);
        assert!(
            length <= libc::BPF_MAXINSNS as usize,
            "{length} instructions"
        );
        let mut code = Vec::with_capacity(length);
        for instruction in self.code {
            let (condition, label) = match instruction {
                Instruction::Plain { code: operation, k } => {
                    code.push(filter(operation, 0, k));
                    continue;
                }
                Instruction::Jump(condition, label) => (condition, label),
            };
            if let Some(condition) = condition {
                let (question, k) = condition.code();
                code.push(filter(libc::BPF_JMP | question, 1, k));
            }
            let target = self.labels[label].map(|at| starts[at]);
            let distance = target.and_then(|target| target.checked_sub(code.len() + 1));
            let distance = distance.expect("jumps lead forward, to labels that are put");
            code.push(filter(libc::BPF_JMP | libc::BPF_JA, 0, distance as u32));
        }
        Program(code)
    }
}

/// An instruction; `otherwise` are those to skip where a question's answer is no.
fn filter(code: u32, otherwise: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: otherwise,
        k,
    }
}

impl Width {
    fn code(self) -> u32 {
        match self {
            Width::Word => libc::BPF_W,
            Width::Half => libc::BPF_H,
            Width::Byte => libc::BPF_B,
        }
    }
}

impl Operation {
    fn code(self) -> u32 {
        match self {
            Operation::Add => libc::BPF_ADD,
            Operation::Multiply => libc::BPF_MUL,
            Operation::And => libc::BPF_AND,
            Operation::Or => libc::BPF_OR,
            Operation::Xor => libc::BPF_XOR,
            Operation::ShiftLeft => libc::BPF_LSH,
            Operation::ShiftRight => libc::BPF_RSH,
        }
    }
}

impl Condition {
    fn code(self) -> (u32, u32) {
        match self {
            Condition::Is(number) => (libc::BPF_JEQ | libc::BPF_K, number),
            Condition::HasAnyOf(bits) => (libc::BPF_JSET | libc::BPF_K, bits),
            Condition::IsNotBelowIndex => (libc::BPF_JGE | libc::BPF_X, 0),
        }
    }
}
