//! One multiplexed connection between an agent and the portal
