"""Writers of realistic and of random changes, for recordings and for tests on a real MySQL."""
