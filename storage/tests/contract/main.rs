//! One contract for all implementations of the storage port: POSIX on a temporary directory, and on an XFS and an ext4 with project quotas
//! (`storage/tests/with-xfs` runs those); BeeGFS 7 on answers that were captured; BeeGFS 8 on answers that are written from its source. The
//! assertions are the same for all; what a storage does not have it must say by `Unsupported`, and by its capabilities.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod benches;
mod disks;
mod reads;
mod real;
mod trouble;
mod writes;

/// Makes one test for each implementation out of a function that takes the bench.
macro_rules! contract {
    ($($name:ident;)*) => {
        mod posix {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::posix()).await;
            })*
        }
        mod posix_on_xfs {
            $(#[tokio::test]
            #[ignore = "storage/tests/with-xfs runs it"]
            async fn $name() {
                super::$name(&crate::benches::posix_on("EIRENE_TEST_XFS")).await;
            })*
        }
        mod posix_on_ext4 {
            $(#[tokio::test]
            #[ignore = "storage/tests/with-xfs runs it"]
            async fn $name() {
                super::$name(&crate::benches::posix_on("EIRENE_TEST_EXT4")).await;
            })*
        }
        mod beegfs7_captured {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::beegfs7()).await;
            })*
        }
        mod beegfs8_written {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::beegfs8()).await;
            })*
        }
    };
}
pub(crate) use contract;
