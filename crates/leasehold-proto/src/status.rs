//! The numbers of the gRPC status codes.

use leasehold_mvcc::Code;

const NUMBERS: [(Code, i32); 16] = [
    (Code::Cancelled, 1),
    (Code::Unknown, UNKNOWN),
    (Code::InvalidArgument, 3),
    (Code::DeadlineExceeded, 4),
    (Code::NotFound, 5),
    (Code::AlreadyExists, 6),
    (Code::PermissionDenied, 7),
    (Code::ResourceExhausted, 8),
    (Code::FailedPrecondition, 9),
    (Code::Aborted, 10),
    (Code::OutOfRange, 11),
    (Code::Unimplemented, 12),
    (Code::Internal, 13),
    (Code::Unavailable, 14),
    (Code::DataLoss, 15),
    (Code::Unauthenticated, 16),
];

const UNKNOWN: i32 = 2;

/// The number of a gRPC status code.
pub fn code_number(code: Code) -> i32 {
    NUMBERS.iter().find(|(known, _)| *known == code).map_or(UNKNOWN, |(_, number)| *number)
}

/// The gRPC status code of a failed call. Numbers outside gRPC's are [`Code::Unknown`], and so is 0: a failure that
/// says "all is well" is one of which nothing is known.
pub fn code_from_number(number: i32) -> Code {
    NUMBERS.iter().find(|(_, known)| *known == number).map_or(Code::Unknown, |(code, _)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_grpc_has_a_code_of_its_own() {
        for number in 1..=16 {
            assert_eq!(code_number(code_from_number(number)), number);
        }
        assert_eq!(code_number(Code::Unavailable), 14, "as the gRPC specification has it");
    }

    #[test]
    fn a_failure_that_says_ok_is_unknown() {
        for number in [0, 17, -1] {
            assert_eq!(code_from_number(number), Code::Unknown);
        }
    }

    #[cfg(feature = "client")]
    #[test]
    fn tonic_counts_the_same() {
        for number in 1..=16 {
            let theirs = format!("{:?}", tonic::Code::from_i32(number));
            assert_eq!(format!("{:?}", code_from_number(number)), theirs);
        }
    }
}
