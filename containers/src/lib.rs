//! Container engines: Apptainer specs to argv, Docker Engine for building images
