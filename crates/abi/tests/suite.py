"""Runs the test suite that Debian ships with pyverbs, and prints one line per test: name, end, why.

Usage: suite.py FOLDER DEVICE
The suite throws dice; here they are the same for each test every time.
"""

import importlib.util
import os
import random
import sys
import unittest


class Told(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        random.seed(test.id())

    def tell(self, test, end, why=''):
        # The suite itself prints to standard output, also without a line's end.
        why = ' '.join(str(why).split())
        os.write(1, f'\nRESULT\t{test.id()}\t{end}\t{why}\n'.encode())

    def addSuccess(self, test):
        self.tell(test, 'passed')

    def addSkip(self, test, reason):
        self.tell(test, 'skipped', reason)

    def addError(self, test, err):
        self.tell(test, 'failed', f'{err[0].__name__}: {err[1]}')

    def addFailure(self, test, err):
        self.tell(test, 'failed', f'{err[0].__name__}: {err[1]}')


def main():
    folder, device = sys.argv[1:3]
    sys.argv[1:] = ['--dev', device]
    sys.path.insert(0, folder)
    from args_parser import parser
    place = os.path.join(folder, '__init__.py')
    spec = importlib.util.spec_from_file_location('tests', place, submodule_search_locations=[folder])
    tests = importlib.util.module_from_spec(spec)
    sys.modules['tests'] = tests
    spec.loader.exec_module(tests)
    parser.parse_args()
    unittest.TestLoader().loadTestsFromModule(tests).run(Told())


main()
