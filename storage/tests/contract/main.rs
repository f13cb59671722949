//! One contract for all implementations of the storage port: POSIX on a temporary directory, and on an XFS and an ext4 with project quotas
//! (`storage/tests/with-xfs` runs those); BeeGFS 7 on answers that were captured, and on daemons that run (`EIRENE_TEST_BEEGFS7` names them);
//! BeeGFS 8 on answers that were captured, of 8.3.1 and of a build shortly before 8.4.0. The assertions are the same for all; what a storage
//! does not have it must say by `Unsupported`, and by its capabilities.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod beegfs7_real;
mod beegfs8_real;
mod benches;
mod disks;
mod reads;
mod trouble;
mod writes;

/// Makes one test for each implementation out of a function that takes the bench. Those in brackets are about trouble that only stand-ins play.
macro_rules! contract {
    ($($name:ident;)* $([$($played:ident;)*])?) => {
        mod posix {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::posix()).await;
            })*
            $($(#[tokio::test]
            async fn $played() {
                super::$played(&crate::benches::posix()).await;
            })*)?
        }
        mod posix_on_xfs {
            $(#[tokio::test]
            #[ignore = "storage/tests/with-xfs runs it"]
            async fn $name() {
                super::$name(&crate::benches::posix_on("EIRENE_TEST_XFS")).await;
            })*
            $($(#[tokio::test]
            #[ignore = "storage/tests/with-xfs runs it"]
            async fn $played() {
                super::$played(&crate::benches::posix_on("EIRENE_TEST_XFS")).await;
            })*)?
        }
        mod posix_on_ext4 {
            $(#[tokio::test]
            #[ignore = "storage/tests/with-xfs runs it"]
            async fn $name() {
                super::$name(&crate::benches::posix_on("EIRENE_TEST_EXT4")).await;
            })*
            $($(#[tokio::test]
            #[ignore = "storage/tests/with-xfs runs it"]
            async fn $played() {
                super::$played(&crate::benches::posix_on("EIRENE_TEST_EXT4")).await;
            })*)?
        }
        mod beegfs7_captured {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::beegfs7()).await;
            })*
            $($(#[tokio::test]
            async fn $played() {
                super::$played(&crate::benches::beegfs7()).await;
            })*)?
        }
        mod beegfs7_real_if_there_is_one {
            $(#[tokio::test]
            #[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
            async fn $name() {
                super::$name(&crate::benches::beegfs7_real()).await;
            })*
        }
        mod beegfs8_captured_8_3 {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::beegfs8_3()).await;
            })*
            $($(#[tokio::test]
            async fn $played() {
                super::$played(&crate::benches::beegfs8_3()).await;
            })*)?
        }
        mod beegfs8_captured_8_4 {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::benches::beegfs8_4()).await;
            })*
            $($(#[tokio::test]
            async fn $played() {
                super::$played(&crate::benches::beegfs8_4()).await;
            })*)?
        }
    };
}
pub(crate) use contract;
