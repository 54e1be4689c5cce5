//! Operations and data types of NCCL, by the names that it passes to a profiler.

use serde::Serialize;

/// What an operation does, as `ncclFuncToString` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NcclFunction {
    /// Sum or another reduction, which every rank receives.
    AllReduce,
    /// Every rank receives the data of all.
    AllGather,
    /// Every rank receives a share of the reduction.
    ReduceScatter,
    /// One rank sends to all others.
    Broadcast,
    /// One rank receives the reduction.
    Reduce,
    /// Every rank sends a share to every other.
    AllToAll,
    /// One rank sends to one other.
    Send,
    /// One rank receives from one other.
    Recv,
    /// An operation that this version does not know.
    Other,
}

impl NcclFunction {
    /// The function of a name, `ncclOther` for one that is unknown.
    pub fn from_name(name: &[u8]) -> Self {
        match name {
            b"AllReduce" => Self::AllReduce,
            b"AllGather" => Self::AllGather,
            b"ReduceScatter" => Self::ReduceScatter,
            b"Broadcast" => Self::Broadcast,
            b"Reduce" => Self::Reduce,
            b"AlltoAll" | b"AllToAll" => Self::AllToAll,
            b"Send" | b"SendRecv" => Self::Send,
            b"Recv" => Self::Recv,
            _ => Self::Other,
        }
    }
}

/// The type of an element, as `ncclDatatypeToString` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataType {
    /// Bytes of one element.
    pub bytes: u8,
}

impl DataType {
    /// The type of a name; one of unknown name has elements of one byte.
    pub fn from_name(name: &[u8]) -> Self {
        let bytes = match name {
            b"ncclFloat16" | b"ncclBfloat16" => 2,
            b"ncclInt32" | b"ncclUint32" | b"ncclFloat32" => 4,
            b"ncclInt64" | b"ncclUint64" | b"ncclFloat64" => 8,
            _ => 1,
        };
        Self { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nccl_are_known() {
        assert_eq!(NcclFunction::from_name(b"ReduceScatter"), NcclFunction::ReduceScatter);
        assert_eq!(NcclFunction::from_name(b"Gather"), NcclFunction::Other);
        assert_eq!(DataType::from_name(b"ncclBfloat16").bytes, 2);
        assert_eq!(DataType::from_name(b"ncclFloat8e4m3").bytes, 1);
    }
}
