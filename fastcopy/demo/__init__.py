"""An SFTP server of our own on loopback, with throwaway keys: for `fastcopy demo`, and for tests."""
