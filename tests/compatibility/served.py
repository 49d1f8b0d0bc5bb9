"""The pack of the fixtures, for a gateway in a process of its own."""

from tests.compatibility.shop import Shop

pack = Shop().pack
