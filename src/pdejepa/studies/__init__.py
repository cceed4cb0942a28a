"""Trainings and measurements that answer one question each."""
