"""factor: prime factors, in ascending order."""

import cli

SMALL = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def run(argv):
    _, names = cli.options(argv, "")
    words = names or cli.read("-").decode("utf-8", "surrogateescape").split()
    code = 0
    for word in words:
        text = word.strip(" ")
        digits = text[1:] if text.startswith("+") else text
        if not (digits.isascii() and digits.isdigit()):
            cli.complain("factor", f"'{word}' is not a valid positive integer")
            code = 1
            continue
        number = int(digits)
        cli.out(cli.encode(" ".join([f"{number}:", *map(str, sorted(factors(number)))]) + "\n"))
    return code


def factors(number):
    """Return the prime factors, each as often as it occurs."""
    found = []
    for prime in SMALL:
        while number > 1 and number % prime == 0:
            found.append(prime)
            number //= prime
    waiting = [number] if number > 1 else []
    while waiting:
        part = waiting.pop()
        if is_prime(part):
            found.append(part)
        else:
            divisor = split(part)
            waiting += [divisor, part // divisor]
    return found


def is_prime(number):
    """Miller-Rabin with the first twelve primes: exact below 3.3e24."""
    if number < 2 or any(number % prime == 0 for prime in SMALL):
        return number in SMALL
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in SMALL:
        value = pow(base, odd, number)
        if value in (1, number - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % number
            if value == number - 1:
                break
        else:
            return False
    return True


def split(number):
    """Return a proper divisor of a composite number (Pollard's rho in Brent's form, one gcd for many steps)."""
    step = 0
    while True:
        step += 1
        divisor = attempt(number, step)
        if divisor < number:
            return divisor


def attempt(number, step):
    """Return a divisor above 1; it is the number itself when this step does not work."""
    fast, power, divisor = 2, 1, 1
    while divisor == 1:
        slow, done = fast, 0
        while done < power and divisor == 1:
            checkpoint, product = fast, 1
            for _ in range(min(128, power - done)):
                fast = (fast * fast + step) % number
                product = product * abs(slow - fast) % number
            divisor = gcd(product, number)
            done += 128
        power *= 2
    if divisor == number:
        # The factors met in one batch: go through it again step by step.
        divisor = 1
        while divisor == 1:
            checkpoint = (checkpoint * checkpoint + step) % number
            divisor = gcd(abs(slow - checkpoint), number)
    return divisor


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a
